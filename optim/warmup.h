// What one_bit_adam, zero_one_adam and one_bit_lamb have in common: the options of their warm-up and of their signs,
// the length of the warm-up in a run, and texts for the user.
#pragma once
#include <cstdint>
#include <string>

#include "comm/compress/wire/scaled_signs.h"
#include "optim/method.h"

namespace godwit {

// Adds the options warmup_fraction, warmup_steps, sign_scale and block_size.
template <class Options>
void describe_warmup(Options& o, OptionList& list, const std::string& what) {
  list.add("warmup_fraction", o.warmup_fraction, what + ", as a fraction of the run", kFraction);
  list.add("warmup_steps", o.warmup_steps, what + ", in steps; 0: warmup_fraction of the run", kNotNegative);
  list.add("sign_scale", o.sign_scale, "scale of a block of signs: mean magnitude or root mean square");
  list.add("block_size", o.block_size, "values per scale; 0: one scale per parameter tensor; -1: one per message",
           {.min = -1});
}

// Length of the warm-up in a run of `steps` steps: `warmup_steps` if not 0, otherwise `fraction` of the run, at least
// one step. Throws if fewer than `least_after` steps remain after the warm-up. `what`: the purpose of these steps, for
// the message ("compress").
int64_t warmup_of_run(const std::string& name, double fraction, int64_t warmup_steps, int64_t steps,
                      int64_t least_after, const std::string& what);
// Throws if the warm-up is given as a fraction only.
void check_warmup_in_steps(const std::string& name, double fraction, int64_t warmup_steps);
// Throws if the warm-up is missing or given as a fraction only.
void check_warmup_given(const std::string& name, double fraction, int64_t warmup_steps);

// Lines for OptimizerMethod::notices. Without bias correction, v of a constant g² stays (1 − β2^n)·g² after n changes,
// and all later steps are longer than Adam's.
std::vector<std::string> frozen_variance_notices(const std::string& name, double beta2, int64_t changes);
std::string long_steps_hint(const std::string& name);  // OptimizerMethod::divergence_hint

}  // namespace godwit
