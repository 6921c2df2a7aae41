// The option model.recompute of programs that train transformers.
#pragma once
#include <cstdint>
#include <string>

#include "engine/options.h"

namespace godwit::apps {

// Adds the option "recompute". The field's default is "false".
void add_recompute(OptionList& list, std::string& recompute);

// Number of layers that `recompute` asks for in a network of `layers`. Throws if that is more than there are.
int64_t recomputed_layers(const std::string& recompute, int64_t layers);

}  // namespace godwit::apps
