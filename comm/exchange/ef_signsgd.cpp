#include "comm/exchange/ef_signsgd.h"

#include "comm/exchange/error_feedback_all_reduce.h"

namespace godwit {
namespace {

// Replaces the gradient by its ErrorFeedbackAllReduce. Errors are in gradient units and contain no learning rate.
class EfSignSgd : public Exchange {
 public:
  EfSignSgd(const EfSignSgdOptions& o, const ExchangeInputs& in)
      : all_reduce_("ef_signsgd", {.scale = o.sign_scale, .scale_block = o.block_size}, in.buckets, in.comm) {}
  void mean(Bucket& bucket, Communicator& comm, int64_t step) override {
    all_reduce_.mean(bucket, bucket.grad, bucket.grad, comm, step);
  }
  std::vector<StateTensor> state() const override { return all_reduce_.state(); }  // "e", "server_e"

 private:
  ErrorFeedbackAllReduce all_reduce_;
};

}  // namespace

void EfSignSgdOptions::describe(OptionList& list) {
  list.add("block_size", block_size,
           "values per scale, within a parameter; 0: one scale per parameter; -1: one scale for the whole model",
           {-1, kInfinity});
  list.add("sign_scale", sign_scale, "scale of a block's signs: mean magnitude or root mean square");
}

const ExchangeMethod& ef_signsgd_method() {
  static const ExchangeMethod method{
      .name = "ef_signsgd",
      .help = "signs and one scale per block in both directions, with error feedback",
      .paper =
          "Karimireddy et al., Error Feedback Fixes SignSGD and other Gradient Compression Schemes, arXiv:1901.09847, "
          "2019",
      .bytes = "1 bit per parameter and one float32 per block to the owners, and the same amount back",
      .defaults = EfSignSgdOptions{},
      .make = [](const AnyOptions& options, const ExchangeInputs& in) -> std::unique_ptr<Exchange> {
        return std::make_unique<EfSignSgd>(options.as<EfSignSgdOptions>(), in);
      }};
  return method;
}

}  // namespace godwit
