// The option model.recompute of programs that train transformers.
#pragma once
#include <cstdint>
#include <string>

#include "engine/options.h"

namespace godwit::apps {

// Adds the option "recompute", stored in `recompute`, whose default is "false".
void add_recompute(OptionList& list, std::string& recompute);

// Number of layers to recompute in a network of `layers` layers. Throws if `recompute` names more than `layers`.
int64_t recomputed_layers(const std::string& recompute, int64_t layers);

}  // namespace godwit::apps
