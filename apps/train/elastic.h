// A run that continues with another number of workers.
#pragma once
#include <string>

#include "apps/config/config.h"

namespace godwit::apps {

// If `config` continues a run that had another number of workers than `now`: changes accumulation, otherwise batch,
// such that a step has as many samples as before. The saved run's numbers are those of its config.json. Returns what
// was changed, for a notice; "" for nothing. Throws if the workers cannot divide the samples of a step.
std::string keep_samples_per_step(CommonConfig& config, int64_t now);

}  // namespace godwit::apps
