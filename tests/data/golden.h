// The committed JPEGs, and the results of PIL and torchvision for them (see make_golden.py).
#pragma once
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support.h"

namespace godwit::data {

inline std::string golden_path(const std::string& name) {
  return std::string(GODWIT_SOURCE_DIR) + "/tests/data/golden/" + name;
}

inline Bytes golden_jpeg(const std::string& name) { return read(golden_path(name + ".jpg")); }

inline const nlohmann::json& golden() {
  static const nlohmann::json values = nlohmann::json::parse(std::ifstream(golden_path("expected.json")));
  return values;
}

}  // namespace godwit::data
