// The option model.recompute of the programs that train transformers.
#pragma once
#include <cstdint>
#include <string>

#include "engine/options.h"

namespace godwit::apps {

// Adds the option "recompute", whose default is "false". Its value is stored in `recompute`.
void add_recompute(OptionList& list, std::string& recompute);

// Number of layers to recompute in a network of `layers` layers. Throws if `recompute` is a number greater than
// `layers`.
int64_t recomputed_layers(const std::string& recompute, int64_t layers);

}  // namespace godwit::apps
