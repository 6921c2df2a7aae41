#include "comm/exchange/dense.h"

#include "comm/buckets/sharding.h"
#include "comm/compress/int8.h"
#include "comm/compress/wire/half.h"
#include "comm/exchange/block_exchange.h"
#include "comm/exchange/half_mean.h"
#include "comm/exchange/shared_options.h"

namespace godwit {
namespace {

using Wire = DenseOptions::Wire;

class Dense : public Exchange {
 public:
  Dense(DType wire, bool to_owners) : wire_(wire), to_owners_(to_owners) {}
  void mean(Bucket& bucket, Communicator& comm, int64_t) override {
    Group& world = *comm.world;
    if (wire_ == DType::f32 || world.size() == 1) {
      if (to_owners_) return mean_to_owners(bucket, world, "dense/reduce_scatter");
      return world.all_reduce(bucket.grad, Reduce::mean, "dense/all_reduce");
    }
    check_divides(bucket, world.size(), "dense");
    if (!to_owners_)
      return half_mean(world, bucket.grad, wire_, world.size(), "dense", "dense/all_to_all", "dense/all_gather");
    const Tensor own =
        half_mean_part(world, shards_as_parts(bucket, bucket.grad), wire_, world.size(), "dense", "dense/all_to_all");
    const Segment& owned = bucket.owned;
    from_half(own.range(0, owned.numel()), bucket.grad.range(owned.begin, owned.numel()));
  }

 private:
  DType wire_;
  bool to_owners_;  // zero2 or zero3
};

}  // namespace

void DenseOptions::describe(OptionList& list) {
  list.add("wire", wire,
           "type in which gradients and means are sent; int8 has one scale per 1024 values; auto: the run measures f32 "
           "and bf16, and picks bf16 if the predicted step is 5 % shorter");
  list.add("error_feedback", error_feedback, "with int8: where rounding errors are kept and added to the next step");
}

void DenseOptions::check() const {
  godwit::check(wire == Wire::int8 || error_feedback == ErrorFeedback::none, "dense: error_feedback ",
                choice_name(error_feedback), " needs wire int8, but the wire is ", choice_name(wire),
                "; set exchange.wire=int8, or exchange.error_feedback=none");
}

const ExchangeMethod& dense_method() {
  static const ExchangeMethod method{
      .name = "dense",
      .help = "mean of all values, in float32, in 16 bits or in 8-bit blocks",
      .paper = "",
      .bytes =
          "one float32 per parameter to the owners, and the same amount back; 2 bytes per parameter each way in 16 "
          "bits; 1 byte and one float32 per 1024 parameters in int8",
      .defaults = DenseOptions{},
      .supports_zero2 = [](const AnyOptions& options) { return options.as<DenseOptions>().wire != Wire::int8; },
      .make = [](const AnyOptions& options, const ExchangeInputs& in) -> std::unique_ptr<Exchange> {
        const DenseOptions& o = options.as<DenseOptions>();
        if (o.wire == Wire::int8)
          return block_exchange(int8_compressor(), block_options("dense", 1024, Reply::coded, o.error_feedback),
                                in.buckets, in.comm, in.seed);
        godwit::check(o.wire != Wire::automatic, kWireNotPicked);
        const DType wire = o.wire == Wire::f32 ? DType::f32 : o.wire == Wire::bf16 ? DType::bf16 : DType::f16;
        return std::make_unique<Dense>(wire, means_stay_with_owners(in.sharding));
      }};
  return method;
}

}  // namespace godwit
