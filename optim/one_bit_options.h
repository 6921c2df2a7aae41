// Options, uncompressed means and texts for the user that one_bit_adam, zero_one_adam and one_bit_lamb share.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "comm/compress/wire/scaled_signs.h"
#include "optim/method.h"

namespace godwit {

// The type in which uncompressed gradients are sent.
enum class DenseWire { bf16, f16, f32 };
inline std::vector<std::string> choices_of(DenseWire) { return {"bf16", "f16", "f32"}; }

// Collective: x ← mean of x over the ranks. `purpose` is the prefix of the phases: "one_bit_adam/warmup".
void dense_mean(Group& world, const Tensor& x, DenseWire wire, const std::string& purpose);

// update_limit as used by a kernel: 0, which means no limit, becomes infinity.
inline float limit_of(double update_limit) {
  return update_limit > 0 ? static_cast<float>(update_limit) : std::numeric_limits<float>::infinity();
}

// Adds the options warmup_fraction, warmup_steps, update_limit, dense_wire, sign_scale and block_size. `help`: phrase
// for the warm-up.
template <class Options>
void describe_warmup(Options& o, OptionList& list, const std::string& help) {
  list.add("warmup_fraction", o.warmup_fraction, help + ", as a fraction of the run", kFraction);
  list.add("warmup_steps", o.warmup_steps, help + ", in steps; 0: warmup_fraction of the run", kNotNegative);
  list.add("update_limit", o.update_limit,
           "limit of |m/sqrt(v)|, after the warm-up if there is one; 0: no limit, as published", kNotNegative);
  list.add("dense_wire", o.dense_wire, "type in which uncompressed gradients are sent");
  list.add("sign_scale", o.sign_scale, "scale of a block of signs: mean magnitude or root mean square");
  list.add("block_size", o.block_size, "values per scale; 0: one scale per parameter tensor; -1: one per message",
           {.min = -1});
}

// Adds the options warmup and refresh_variance.
template <class Options>
void describe_freeze(Options& o, OptionList& list) {
  list.add("warmup", o.warmup,
           "auto: the warm-up ends when the second moments have settled, at the latest after warmup_steps or "
           "warmup_fraction; fixed: the warm-up ends exactly there");
  list.add(
      "refresh_variance", o.refresh_variance,
      "after the warm-up, adapt the second moments of each tensor to its gradients in a few steps, whose gradients "
      "are also sent uncompressed");
}

// Length of the warm-up in a run of `steps` steps: `warmup_steps` if not 0, otherwise `fraction` of the run, at least
// one step. Throws if fewer than `least_after` steps remain after the warm-up. `purpose`: purpose of these steps for
// the message, such as "compress".
int64_t warmup_of_run(const std::string& name, double fraction, int64_t warmup_steps, int64_t steps,
                      int64_t least_after, const std::string& purpose);
// Throws if the warm-up is given only as a fraction.
void check_warmup_in_steps(const std::string& name, double fraction, int64_t warmup_steps);
// Throws if the warm-up is missing or given only as a fraction.
void check_warmup_given(const std::string& name, double fraction, int64_t warmup_steps);

// Lines for OptimizerMethod::notices. Without bias correction, v of a constant g² stays at (1 − β2^n)·g² after n
// changes, and all later steps are longer than Adam's.
std::vector<std::string> frozen_variance_notices(const std::string& name, double beta2, int64_t changes);
std::string long_steps_hint(const std::string& name);  // text for OptimizerMethod::divergence_hint

}  // namespace godwit
