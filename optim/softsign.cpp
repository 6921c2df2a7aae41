#include "optim/softsign.h"

#include "engine/update_each.h"
#include "optim/decay.h"
#include "optim/state.h"

namespace godwit {

void SoftSignSgd::Options::describe(OptionList& list) {
  describe_common(*this, list);
  list.add("beta", beta, "decay rate of the means of gradients and of their magnitudes", kDecayRate);
  list.add("eps", eps, "added to the denominator", kPositiveFloat);
}

SoftSignSgd::SoftSignSgd(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange)
    : Optimizer(std::move(exchange)), options_(options), m_(state_like(buckets, "m")), b_(state_like(buckets, "b")) {}

void SoftSignSgd::apply(Bucket& bucket, const StepInfo& step) {
  dispatch_real(bucket.param.dtype(), "softsignsgd", [&]<class T>() {
    const auto r = [](double value) { return static_cast<T>(value); };
    on_device(bucket.param, [&](auto device) {
      T *x = data_ptr<T>(device, bucket.param), *m = state_ptr<T>(device, m_, bucket);
      T* b = state_ptr<T>(device, b_, bucket);
      const T* g = data_ptr<T>(device, bucket.grad);
      const auto update = [&](double decay) {
        return SoftSignUpdate<T>{r(step.lr), r(1 - step.lr * decay), r(options_.beta), r(1 - options_.beta),
                                 r(options_.eps)};
      };
      update_by_decay(device, "softsignsgd", bucket, options_.weight_decay, options_.decay_norm_and_bias, update, x, m,
                      b, g);
    });
  });
}

std::vector<StateTensor> SoftSignSgd::state() const { return concat(m_, b_); }

const OptimizerMethod& softsignsgd_method() {
  static const OptimizerMethod method{
      .name = "softsignsgd",
      .help = "mean gradient divided by mean magnitude of the gradient: Birder without quantization",
      .paper =
          "Peng et al., Birder: Communication-Efficient 1-bit Adaptive Optimizer for Practical Distributed DNN "
          "Training, NeurIPS 2023, appendix B",
      .bytes = kExchangeBytes,
      .defaults = SoftSignSgd::Options{},
      .make = make_with_exchange<SoftSignSgd>,
  };
  return method;
}

}  // namespace godwit
