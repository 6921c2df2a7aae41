#include "comm/exchange.h"

#include "engine/parallel.h"

namespace godwit {
namespace {

class Dense : public Exchange {
 public:
  void mean(Bucket& bucket, Communicator& comm) override {
    comm.world->all_reduce(bucket.grad, Reduce::mean, "dense/all_reduce");
  }
};

// Rounds differently from Dense: the sums of the nodes are added, ((a+b)+(c+d)), where Dense adds rank by rank,
// (((a+b)+c)+d). Both divide once.
class Hierarchical : public Exchange {
 public:
  void mean(Bucket& bucket, Communicator& comm) override {
    const int world = comm.topology.world();
    check(bucket.padded() % world == 0, "hierarchical: bucket ", bucket.index, " has ", bucket.padded(),
          " elements, not a multiple of the ", world, " ranks; choose the buckets' alignment so");
    const Tensor shard({bucket.padded() / comm.topology.workers_per_node}, bucket.grad.dtype());
    comm.intra->reduce_scatter(bucket.grad, shard, Reduce::sum, "hierarchical/intra_reduce_scatter");
    comm.inter->all_reduce(shard, Reduce::sum, "hierarchical/inter_all_reduce");
    divide(shard, world);
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
};

}  // namespace

std::unique_ptr<Exchange> make_exchange(const std::string& name) {
  if (name == "dense") return std::make_unique<Dense>();
  if (name == "hierarchical") return std::make_unique<Hierarchical>();
  fail("exchange: '", name, "' is unknown; there are dense and hierarchical");
}

std::vector<std::string> exchange_names() { return {"dense", "hierarchical"}; }

}  // namespace godwit
