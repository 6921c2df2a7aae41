// SpikeGuard: detects steps whose loss or gradient norm is far above the values of earlier steps.
#pragma once
#include <map>
#include <string>

#include "engine/options.h"
#include "engine/tensor.h"

namespace godwit {

// Options of the spike guard.
struct SpikeOptions {
  std::string guard = "off";  // off, skip (the step), or rollback (to the last checkpoint)
  double z = 6;               // a spike exceeds the mean by more than z standard deviations
  int64_t window = 100;       // number of recent normal steps from which mean and deviation are computed

  void describe(OptionList& list);  // adds the options
};

// Keeps the loss and the gradient norm of the last `window` normal steps. A value is a spike if it exceeds the mean of
// these steps by more than `z` standard deviations. The deviation is at least 1 % of the mean. The first kLeast steps
// are normal.
class SpikeGuard {
 public:
  static constexpr int64_t kLeast = 20;  // number of steps before a spike can be detected

  // Throws unless z > 0 and window ≥ kLeast.
  SpikeGuard(double z, int64_t window);
  // For a normal step, records the values if both are finite, and returns "". For a spike, returns a description: "the
  // loss is 12.5, 8.1 standard deviations above the mean 2.3 of the last 100 steps".
  std::string observe(double loss, double gradient_norm);
  void forget();                                // begins anew, without earlier steps
  std::map<std::string, Tensor> state() const;  // for checkpoints, by name; shares memory with the guard

 private:
  double z_;
  int64_t window_;
  Tensor values_;  // [2, window] float64: losses, norms; a ring buffer
  Tensor seen_;    // [1] int64: number of normal steps
};

}  // namespace godwit
