#include "comm/exchange/hierarchical.h"

#include "comm/exchange/half_mean.h"
#include "comm/exchange/shared_options.h"
#include "comm/reduce.h"

namespace godwit {
namespace {

using NodeWire = HierarchicalOptions::Wire;

// Adds the sums of the nodes, ((a+b)+(c+d)), while dense adds rank by rank, (((a+b)+c)+d); both divide once. The
// results therefore differ by rounding.
class Hierarchical : public Exchange {
 public:
  explicit Hierarchical(DType wire) : wire_(wire) {}
  void mean(Bucket& bucket, Communicator& comm, int64_t) override {
    const int world = comm.topology.world();
    check_divides(bucket, world, "hierarchical");
    const Tensor shard({bucket.padded_numel() / comm.topology.workers_per_node}, bucket.grad.dtype());
    comm.intra->reduce_scatter(bucket.grad, shard, Reduce::sum, "hierarchical/intra_reduce_scatter");
    if (wire_ == DType::f32 || comm.inter->size() == 1) {
      comm.inter->all_reduce(shard, Reduce::sum, "hierarchical/inter_all_reduce");
      on_device(shard, [&](auto device) { divide(device, shard, world); });
    } else {
      half_mean(*comm.inter, shard, wire_, world, "hierarchical", "hierarchical/inter_all_to_all",
                "hierarchical/inter_all_gather");
    }
    comm.intra->all_gather(shard, bucket.grad, "hierarchical/intra_all_gather");
  }

 private:
  DType wire_;
};

}  // namespace

void HierarchicalOptions::describe(OptionList& list) {
  list.add("wire", wire,
           "type in which gradients and means are sent between nodes; auto: the run measures f32 and bf16, and picks "
           "bf16 if the predicted step is 5 % shorter")
      .check_text = [](const std::string& text, const std::string& subject) {
    check(text != "int8", subject, " is int8, which hierarchical does not have; use bf16 or f16, or exchange dense");
  };
}

const ExchangeMethod& hierarchical_method() {
  static const ExchangeMethod method{
      .name = "hierarchical",
      .help = "sums within each node, mean of the sums between nodes in float32 or 16 bits",
      .paper = "",
      .bytes =
          "one float32 per parameter within the node, and the same amount back; between nodes one float32, or 16 bits, "
          "per parameter of the worker's shard, and the same amount back",
      .defaults = HierarchicalOptions{},
      .make = [](const AnyOptions& options, const ExchangeInputs&) -> std::unique_ptr<Exchange> {
        const NodeWire wire = options.as<HierarchicalOptions>().wire;
        godwit::check(wire != NodeWire::automatic, kWireNotPicked);
        return std::make_unique<Hierarchical>(wire == NodeWire::f32    ? DType::f32
                                              : wire == NodeWire::bf16 ? DType::bf16
                                                                       : DType::f16);
      }};
  return method;
}

}  // namespace godwit
