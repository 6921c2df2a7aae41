// Bytes and texts of all ranks together.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/group.h"

namespace godwit {

// Collective: [rank] -> that rank's bytes, of which each may have another number, on every rank. `phase` names it in the
// statistics.
std::vector<std::vector<uint8_t>> gather_bytes(Group& group, std::vector<uint8_t> own, std::string_view phase);
// Collective: [rank] -> that rank's texts, on every rank. A text holds no zero byte.
std::vector<std::vector<std::string>> gather_texts(Group& group, const std::vector<std::string>& own,
                                                   std::string_view phase);

}  // namespace godwit
