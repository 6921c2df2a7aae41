// Adapts a configuration to the run that it continues.
#pragma once
#include <string>

#include "apps/config/config.h"

namespace godwit::apps {

// If `config` continues a run that had another number of workers than `now`: changes accumulation, otherwise batch,
// such that a step has as many samples as before. The saved run's numbers are those of its config.json. Returns what
// was changed, for a notice; "" for nothing. Throws if the workers cannot divide the samples of a step.
std::string keep_samples_per_step(CommonConfig& config, int64_t now);

// If `config` continues a run: options that are auto get the values that this run has picked (exchange.wire only for
// the same exchange), so that the result has the bits of an uninterrupted run.
void keep_picked_options(CommonConfig& config);

// If `config` continues a run: a notice of the options whose values differ from the run's, with both values; "" for
// none. Call it after the functions above.
std::string notice_of_changes(const CommonConfig& config);

}  // namespace godwit::apps
