// Conversion of options from JSON. For sources; includes nlohmann/json.
#pragma once
#include <nlohmann/json.hpp>

#include "engine/options.h"

namespace godwit {

OptionValue json_value(const nlohmann::json& node);

}  // namespace godwit
