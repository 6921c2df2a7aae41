// Adapts a configuration to the run that it continues.
#pragma once
#include <string>

#include "apps/config/config.h"

namespace godwit::apps {

// Throws if the folder of a run that `config` continues, or starts anew, has a config.json with other options of the
// network. Options that act on training only, such as dropout, may differ.
void check_same_network(const CommonConfig& config);

// Applies if `config` continues a run whose number of workers differs from `now`, or with --resume auto. Changes
// accumulation, or batch if accumulation does not suffice, so that a step keeps its number of samples. Reads the run's
// config.json. Returns a notice of the change, or "" if there is no change. Throws if the workers cannot divide the
// samples of a step equally, or if a model that reads streams of text has another batch with as many workers.
std::string keep_samples_per_step(CommonConfig& config, int64_t now);

// Applies if `config` continues a run. Replaces auto by the values that this run picked (exchange.wire only for the
// same exchange), so that the result is bit-identical to an uninterrupted run.
void keep_picked_options(CommonConfig& config);

// If `config` continues a run, returns a notice of the changed options with their old and new values; "" if no option
// changed. Must be called after the functions above.
std::string notice_of_changes(const CommonConfig& config);

}  // namespace godwit::apps
