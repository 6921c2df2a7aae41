// Adapts a configuration to the run that it continues.
#pragma once
#include <string>

#include "apps/config/config.h"

namespace godwit::apps {

// If `config` continues a run with another number of workers than `now`: changes accumulation, or batch where that
// does not suffice, so that a step keeps its number of samples. Reads the run's config.json. Returns a notice of the
// change; "" if there is none. Throws if the workers cannot divide the samples of a step equally.
std::string keep_samples_per_step(CommonConfig& config, int64_t now);

// If `config` continues a run: replaces auto by the values that this run picked (exchange.wire only for the same
// exchange), so that the result is bit-identical to an uninterrupted run.
void keep_picked_options(CommonConfig& config);

// If `config` continues a run: a notice of the changed options with their new and old values; "" if none changed. Call
// it after the functions above.
std::string notice_of_changes(const CommonConfig& config);

}  // namespace godwit::apps
