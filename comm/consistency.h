// Checks that all ranks hold the same value, such as a hash of the layout or of the parameters.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/group.h"

namespace godwit {

// Collective: all-gathers `value` in phase "agree". If the values differ, throws an Error on every rank that names
// `subject` and the ranks without the most common value (on a tie, the value of the lowest of the tied ranks).
void check_identical(Group& group, uint64_t value, const std::string& subject);
// Compares several values, equally many on all ranks. The Error names subject(i) of the first value i that differs.
void check_identical(Group& group, const std::vector<uint64_t>& values,
                     const std::function<std::string(size_t)>& subject);

}  // namespace godwit
