// Texts for tokenizer benchmarks, and a clock for the calling thread's CPU time.
#pragma once
#include <cstdint>
#include <cstring>
#include <ctime>
#include <string_view>
#include <vector>

#include "engine/check.h"

namespace godwit::bench {

inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The texts in `bytes`. For each text, `bytes` contains the length (uint32) and the bytes.
inline std::vector<std::string_view> texts_in(const std::vector<uint8_t>& bytes) {
  std::vector<std::string_view> texts;
  for (size_t at = 0; at < bytes.size();) {
    uint32_t length;
    check(bytes.size() - at >= 4, "the texts end within a length");
    std::memcpy(&length, bytes.data() + at, 4);
    check(bytes.size() - at - 4 >= length, "the texts end within text ", texts.size());
    texts.emplace_back(reinterpret_cast<const char*>(bytes.data()) + at + 4, length);
    at += 4 + length;
  }
  return texts;
}

}  // namespace godwit::bench
