#include "optim/spike_guard.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

namespace godwit {

void SpikeOptions::describe(OptionList& list) {
  list.add("guard", guard,
           "if the loss or the gradient norm jumps: do nothing, skip the step, or return to the last checkpoint")
      .with_choices({"off", "skip", "rollback"});
  list.add("z", z, "size of a jump, in standard deviations above the mean", kPositive);
  list.add("window", window, "number of recent normal steps for the mean and the standard deviation",
           {SpikeGuard::kLeast, 1e6});
}

SpikeGuard::SpikeGuard(double z, int64_t window)
    : z_(z), window_(window), values_({2, window}, DType::f64, kCpu), seen_({1}, DType::i64, kCpu) {
  check(z > 0 && window >= kLeast, "spike guard: z is ", z, " and the window ", window,
        "; z must be above 0, the window ", "at least ", kLeast);
  values_.zero();
  seen_.zero();
}

std::string SpikeGuard::observe(double loss, double gradient_norm) {
  int64_t& seen = *seen_.data<int64_t>();
  check(seen >= 0, "spike guard: has seen ", seen, " steps; the checkpoint is corrupt");
  const int64_t count = std::min(seen, window_);
  const double values[] = {loss, gradient_norm};
  for (int which = 0; which < 2 && count >= kLeast; ++which) {
    const double* before = values_.data<double>() + which * window_;
    double mean = 0, square = 0;
    for (int64_t i = 0; i < count; ++i) mean += before[i] / static_cast<double>(count);
    for (int64_t i = 0; i < count; ++i) square += (before[i] - mean) * (before[i] - mean);
    const double deviation = std::max(std::sqrt(square / static_cast<double>(count - 1)), 0.01 * std::abs(mean));
    const double above = values[which] - mean;
    const bool known = deviation > 0;  // false if all values are 0
    if (std::isfinite(above) && (!known || above <= z_ * deviation)) continue;
    std::ostringstream text;
    text << (which == 0 ? "the loss" : "the gradient norm") << " is " << std::setprecision(4) << values[which] << ", "
         << std::setprecision(3) << above / deviation << " standard deviations above the mean " << std::setprecision(4)
         << mean << " of the last " << count << " steps";
    return text.str();
  }
  if (!std::isfinite(loss) || !std::isfinite(gradient_norm)) return "";  // a mean would not be finite
  for (int which = 0; which < 2; ++which) values_.data<double>()[which * window_ + seen % window_] = values[which];
  ++seen;
  return "";
}

void SpikeGuard::forget() { values_.zero(), seen_.zero(); }

std::map<std::string, Tensor> SpikeGuard::state() const { return {{"values", values_}, {"seen", seen_}}; }

}  // namespace godwit
