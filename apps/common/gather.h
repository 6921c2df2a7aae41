// Texts of all ranks together.
#pragma once
#include <string>
#include <vector>

#include "comm/group.h"

namespace godwit::apps {

// Collective: [rank] -> that rank's texts, on every rank. A text holds no zero byte. `phase` names it in the statistics.
std::vector<std::vector<std::string>> gather_texts(Group& group, const std::vector<std::string>& own,
                                                   std::string_view phase);

}  // namespace godwit::apps
