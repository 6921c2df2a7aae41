#include "optim/one_bit_adam.h"

#include <cmath>

#include "engine/update_each.h"
#include "optim/adam.h"
#include "optim/decay.h"
#include "optim/kernels/one_bit_kernels.h"
#include "optim/one_bit_options.h"
#include "optim/state.h"
#include "optim/variance_freeze.h"

namespace godwit {
namespace {

constexpr const char* kOneBitAdam = "one_bit_adam";

template <class T>
std::unique_ptr<Optimizer> warmup(const OneBitAdam::Options& o, const Buckets& buckets) {
  return std::make_unique<T>(typename T::Options{o.lr, o.weight_decay, o.decay_norm_and_bias, o.beta1, o.beta2, o.eps},
                             buckets, nullptr);
}

}  // namespace

void OneBitAdam::Options::describe(OptionList& list) {
  describe_common(*this, list);
  describe_moments(*this, list);
  describe_freeze(*this, list);
  describe_warmup(*this, list, "warm-up by uncompressed Adam");
  list.add("bias_correction", bias_correction, "divide both moments by Adam's bias correction");
  list.add("keep_local_momentum", keep_local_momentum,
           "continue from the worker's momentum instead of the averaged momentum");
}

void OneBitAdam::Options::fit(const Schedule&, int64_t steps) {
  warmup_steps = warmup_of_run(kOneBitAdam, warmup_fraction, warmup_steps, steps, 1, "compress");
}

OneBitAdam::OneBitAdam(const Options& options, const Buckets& buckets, const Communicator& comm)
    : Optimizer(nullptr),
      options_(options),
      freeze_(kOneBitAdam, options.warmup, options.warmup_steps, options.beta2,
              options.refresh_variance ? VarianceFreeze::Refresh::follow : VarianceFreeze::Refresh::off, buckets,
              comm.shards),
      late_(options.refresh_variance, options.beta2, buckets.size()),
      adam_(options.bias_correction ? warmup<AdamW>(options, buckets) : warmup<BertAdam>(options, buckets)),
      all_reduce_(kOneBitAdam, {options.sign_scale, options.block_size}, buckets, comm) {
  check_warmup_given(kOneBitAdam, options.warmup_fraction, options.warmup_steps);
  const std::vector<StateTensor> state = adam_->state();
  m_.assign(state.begin(), state.begin() + buckets.size());
  v_.assign(state.begin() + buckets.size(), state.end());
}

// Leaves the mean over all ranks in bucket.grad: of gradients during the warm-up, then of momenta.
void OneBitAdam::exchange(Bucket& bucket, Communicator& comm, const StepInfo& step) {
  if (freeze_.warming_up(step.step)) {
    dense_mean(*comm.world, bucket.grad, options_.dense_wire, "one_bit_adam/warmup");
    return freeze_.measure(bucket);
  }
  const Tensor &v = state_of(v_, bucket), &e = all_reduce_.residual(bucket);
  late_.begin(step.step, freeze_.frozen_at());
  late_.measure(bucket, v, e);
  if (freeze_.refreshes(step.step)) {
    const Tensor mean = late_.exchange(bucket, v, e, *comm.world, options_.dense_wire, "one_bit_adam/refresh");
    refresh_variance(freeze_, late_, bucket, v, mean, variance_correction());
  }
  const Tensor& m = state_of(m_, bucket);
  const Tensor& z = options_.keep_local_momentum ? m : bucket.grad;
  const auto beta = static_cast<float>(options_.beta1), o = static_cast<float>(1 - options_.beta1);
  on_device(m, [&](auto device) {
    const float *before = data_ptr<float>(device, m), *g = data_ptr<float>(device, bucket.grad);
    update_each(device, kOneBitAdam, bucket.owned.begin, bucket.owned.end, one_bit::MomentumUpdate{{beta, o}},
                data_ptr<float>(device, z), before, g);
  });
  late_.mean(all_reduce_, bucket, v, z, bucket.grad, comm, step.step);
}

// v is this factor times v̂.
double OneBitAdam::variance_correction() const {
  return options_.bias_correction ? 1 - std::pow(options_.beta2, static_cast<double>(freeze_.frozen_at())) : 1;
}

void OneBitAdam::apply(Bucket& bucket, const StepInfo& step) {
  if (freeze_.frozen_at() == 0) return adam_->apply(bucket, step);
  const auto r = [](double value) { return static_cast<float>(value); };
  const double corrected = 1 - std::pow(options_.beta1, static_cast<double>(step.step));
  one_bit::FrozenUpdate frozen{0, r(options_.bias_correction ? step.lr / corrected : step.lr),
                               r(std::sqrt(variance_correction())), r(options_.eps),
                               // limits |m̂/√v̂|: step_size contains the correction of m
                               limit_of(options_.update_limit * (options_.bias_correction ? corrected : 1))};
  on_device(bucket.param, [&](auto device) {
    float *x = data_ptr<float>(device, bucket.param), *m = state_ptr<float>(device, m_, bucket);
    const float *agreed = data_ptr<float>(device, bucket.grad), *v = state_ptr<float>(device, v_, bucket);
    const auto update = [&](double decay) {
      frozen.keep = r(1 - step.lr * decay);
      return frozen;
    };
    const double decay = options_.weight_decay;
    const bool all = options_.decay_norm_and_bias;
    if (options_.keep_local_momentum) update_by_decay(device, kOneBitAdam, bucket, decay, all, update, x, agreed, v);
    else update_by_decay(device, kOneBitAdam, bucket, decay, all, update, x, m, agreed, v);
  });
}

std::vector<double> OneBitAdam::counters() const {
  std::vector<double> all = freeze_.counters();
  late_.add_to(all);
  return all;
}

std::vector<StateTensor> OneBitAdam::state() const {
  std::vector<StateTensor> m = m_;
  for (StateTensor& part : m) part.replicated = !(options_.keep_local_momentum && freeze_.frozen_at() > 0);
  return concat(concat(std::move(m), v_), all_reduce_.state());
}

const OptimizerMethod& one_bit_adam_method() {
  using Options = OneBitAdam::Options;
  static const OptimizerMethod method{
      .name = kOneBitAdam,
      .help = "Adam, then a frozen second moment and momentum in 1 bit per parameter",
      .paper =
          "Tang et al., 1-bit Adam: Communication Efficient Large-Scale Training with Adam's Convergence Speed, "
          "arXiv:2102.02888, 2021",
      .bytes = "4d(W−1)/W in the warm-up, then d(W−1)/(4W)",
      .defaults = Options{},
      .communicates_itself = true,
      // A refresh uses the norms of parameters.
      .needs_whole_parameters = [](const AnyOptions& o) { return o.as<Options>().refresh_variance; },
      .make = make_communicating<OneBitAdam>,
      .fit = [](AnyOptions& o, const Schedule& schedule, int64_t steps) { o.as<Options>().fit(schedule, steps); },
      .notices =
          [](const AnyOptions& any, int64_t) {
            const Options& o = any.as<Options>();
            if (o.bias_correction) return std::vector<std::string>();
            return frozen_variance_notices(kOneBitAdam, o.beta2, o.warmup_steps);
          },
      .divergence_hint = long_steps_hint(kOneBitAdam),
  };
  return method;
}

}  // namespace godwit
