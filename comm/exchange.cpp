#include "comm/exchange.h"

#include <algorithm>

#include "comm/wire/half.h"
#include "engine/nearest.h"
#include "engine/parallel.h"

namespace godwit {
namespace {

void check_divides(const Bucket& bucket, int ranks, const char* name) {
  check(bucket.padded() % ranks == 0, name, ": bucket ", bucket.index, " has ", bucket.padded(),
        " elements, not a multiple of the ", ranks, " ranks; choose the buckets' alignment so");
}

// x = Σ x over the group's ranks / divisor, in place, all of it in 16 bits on the wire: every rank rounds its values
// and sends each peer its part; the owner of a part adds in float32 and in rank order, divides, and rounds once.
void half_mean(Group& group, const Tensor& x, DType wire, int divisor, const char* name, const char* to_owners,
               const char* to_all) {
  const Tensor all = to_half(Cpu{}, x, wire, name), parts(x.shape(), wire), own({x.numel() / group.size()}, wire);
  group.all_to_all(all, parts, to_owners);
  mean_of_halves(Cpu{}, parts, divisor, own);
  group.all_gather(own, all, to_all);
  from_half(Cpu{}, all, x);
}

class Dense : public Exchange {
 public:
  explicit Dense(DType wire) : wire_(wire) {}
  void mean(Bucket& bucket, Communicator& comm, int64_t) override {
    if (wire_ == DType::f32 || comm.world->size() == 1) return comm.world->all_reduce(bucket.grad, Reduce::mean, "dense/all_reduce");
    check_divides(bucket, comm.world->size(), "dense");
    half_mean(*comm.world, bucket.grad, wire_, comm.world->size(), "dense", "dense/all_to_all", "dense/all_gather");
  }

 private:
  DType wire_;
};

// Rounds differently from Dense: the sums of the nodes are added, ((a+b)+(c+d)), where Dense adds rank by rank,
// (((a+b)+c)+d). Both divide once.
class Hierarchical : public Exchange {
 public:
  explicit Hierarchical(DType wire) : wire_(wire) {}
  void mean(Bucket& bucket, Communicator& comm, int64_t) override {
    const int world = comm.topology.world();
    check_divides(bucket, world, "hierarchical");
    const Tensor shard({bucket.padded() / comm.topology.workers_per_node}, bucket.grad.dtype());
    comm.intra->reduce_scatter(bucket.grad, shard, Reduce::sum, "hierarchical/intra_reduce_scatter");
    if (wire_ == DType::f32 || comm.inter->size() == 1) {
      comm.inter->all_reduce(shard, Reduce::sum, "hierarchical/inter_all_reduce");
      divide(shard, world);
    } else {
      half_mean(*comm.inter, shard, wire_, world, "hierarchical", "hierarchical/inter_all_to_all",
                "hierarchical/inter_all_gather");
    }
    comm.intra->all_gather(shard, bucket.grad, "hierarchical/intra_all_gather");
  }

 private:
  static void divide(const Tensor& x, int divisor) {
    dispatch_real(x.dtype(), "hierarchical", [&]<class T>() {
      T* values = x.data<T>();
      parallel_for(x.numel(), 1 << 16, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) values[i] /= static_cast<T>(divisor);
      });
    });
  }

  DType wire_;
};

}  // namespace

std::vector<std::string> exchange_names() { return {"dense", "hierarchical"}; }

std::vector<std::string> wire_names() { return {"f32", "bf16", "f16"}; }

std::vector<std::string> exchange_keys(const std::string& name) {
  const std::vector<std::string> names = exchange_names();
  check(std::find(names.begin(), names.end(), name) != names.end(), "exchange '", name, "' is unknown",
        suggestion(name, names));
  return {"name", "wire"};
}

std::unique_ptr<Exchange> make_exchange(const ExchangeConfig& config, const Buckets&, const Communicator&, uint64_t) {
  exchange_keys(config.name);  // throws for an unknown name
  const std::string& wire = config.wire;
  const DType dtype = wire == "f32" ? DType::f32 : wire == "bf16" ? DType::bf16 : DType::f16;
  check(dtype != DType::f16 || wire == "f16", "exchange: wire '", wire, "' is unknown; there are f32, bf16 and f16");
  if (config.name == "hierarchical") return std::make_unique<Hierarchical>(dtype);
  return std::make_unique<Dense>(dtype);
}

}  // namespace godwit
