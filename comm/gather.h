// All-gathers of variable-length data.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/group.h"

namespace godwit {

// Collective: all-gather of byte strings of any length. result[r] is the string of rank r. The traffic is counted under
// `phase`.
std::vector<std::vector<uint8_t>> gather_bytes(Group& group, std::vector<uint8_t> own, std::string_view phase);
// Collective: all-gather of lists of strings of any length. result[r] is the list of rank r. A string must not contain
// '\0'.
std::vector<std::vector<std::string>> gather_texts(Group& group, const std::vector<std::string>& own,
                                                   std::string_view phase);

}  // namespace godwit
