// Checks that all ranks hold the same value, such as a hash of the layout or of the parameters.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/group.h"

namespace godwit {

// Collective: all-gathers `value` in phase "agree". If the values differ, every rank throws an Error that names
// `subject`, the ranks without the most common value, and `remedy` if it is not empty. On a tie, the value of the
// lowest tied rank counts as the most common.
void check_identical(Group& group, uint64_t value, const std::string& subject, const std::string& remedy = "");
// Compares several values; all ranks must pass equally many. The Error names subject(i) of the first value i that
// differs.
void check_identical(Group& group, const std::vector<uint64_t>& values,
                     const std::function<std::string(size_t)>& subject, const std::string& remedy = "");

}  // namespace godwit
