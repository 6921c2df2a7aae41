// The JPEGs in the repository, and the results of PIL and torchvision for them (see make_golden.py).
#pragma once
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support.h"

namespace godwit::data {

inline std::string golden_path(const std::string& name) {
  return std::string(GODWIT_SOURCE_DIR) + "/tests/data/golden/" + name;
}

inline Bytes golden_jpeg(const std::string& name) { return read(golden_path(name + ".jpg")); }

// The first marker 0xff `kind` of a JPEG at or after byte `from`. clang 14 cannot compile std::ranges::search.
inline Bytes::iterator find_marker(Bytes& bytes, uint8_t kind, int64_t from = 0) {
  const uint8_t marker[] = {0xff, kind};
  return std::search(bytes.begin() + from, bytes.end(), std::begin(marker), std::end(marker));
}

inline const nlohmann::json& golden() {
  static const nlohmann::json values = nlohmann::json::parse(std::ifstream(golden_path("expected.json")));
  return values;
}

}  // namespace godwit::data
