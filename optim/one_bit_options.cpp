#include "optim/one_bit_options.h"

#include <algorithm>
#include <cmath>

#include "comm/exchange/half_mean.h"

namespace godwit {

void dense_mean(Group& world, const Tensor& x, DenseWire wire, const std::string& purpose) {
  if (wire == DenseWire::f32 || world.size() == 1) return world.all_reduce(x, Reduce::mean, purpose + "_all_reduce");
  half_mean(world, x, wire == DenseWire::bf16 ? DType::bf16 : DType::f16, world.size(), purpose.c_str(),
            (purpose + "_all_to_all").c_str(), (purpose + "_all_gather").c_str());
}

int64_t warmup_of_run(const std::string& name, double fraction, int64_t warmup_steps, int64_t steps,
                      int64_t least_after, const std::string& purpose) {
  if (warmup_steps == 0 && fraction > 0)
    warmup_steps = std::max<int64_t>(std::llround(fraction * static_cast<double>(steps)), 1);
  check(warmup_steps <= steps - least_after, name, ": a warm-up of ", warmup_steps, " steps leaves nothing to ",
        purpose, " of a run of ", steps,
        "; lower optimizer.warmup_steps or optimizer.warmup_fraction, or train longer");
  return warmup_steps;
}

void check_warmup_in_steps(const std::string& name, double fraction, int64_t warmup_steps) {
  check(warmup_steps > 0 || fraction == 0, name, ": the length of the run is unknown, so warmup_fraction ", fraction,
        " has no length in steps; set warmup_steps, or call for_run()");
}

void check_warmup_given(const std::string& name, double fraction, int64_t warmup_steps) {
  check_warmup_in_steps(name, fraction, warmup_steps);
  check(warmup_steps > 0, name, ": needs a warm-up, in which the variance forms; set warmup_steps or warmup_fraction");
}

std::vector<std::string> frozen_variance_notices(const std::string& name, double beta2, int64_t changes) {
  const double held = 1 - std::pow(beta2, static_cast<double>(changes));
  if (changes == 0 || held >= 0.1) return {};
  return {detail::concat(name, " freezes its second moment after ", changes, " changes, at ",
                         std::round(1000 * held) / 10, " % of g², so its steps are ",
                         std::round(10 / std::sqrt(held)) / 10,
                         " times as long as Adam's, and longer where gradients are rare; raise "
                         "optimizer.warmup_fraction, or train longer")};
}

std::string long_steps_hint(const std::string& name) {
  return name +
         " takes longer steps than Adam where a gradient has outgrown its frozen second moment: lower --lr, raise "
         "optimizer.warmup_fraction, keep optimizer.update_limit at 1, or set optimizer.block_size to the length of "
         "a row";
}

}  // namespace godwit
