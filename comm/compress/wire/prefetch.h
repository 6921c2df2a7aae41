// Software prefetch, one page ahead, because hardware prefetchers stop at page boundaries. The address may lie past the
// end of the array.
#pragma once
#include <cstdint>

namespace godwit {

constexpr int64_t kPageValues = 1024, kLineValues = 16;  // values per page and per cache line, in float32

inline void prefetch(const float* line) { __builtin_prefetch(line); }  // prefetches the cache line at this address

}  // namespace godwit
