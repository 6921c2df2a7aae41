// Memory asked for a page ahead of its use, since processors' own foresight ends with a page. It may lie beyond an
// array's end.
#pragma once
#include <cstdint>

namespace godwit {

constexpr int64_t kPageValues = 1024, kLineValues = 16;  // float32

inline void fetch(const float* line) { __builtin_prefetch(line); }

}  // namespace godwit
