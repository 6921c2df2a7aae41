// Texts for tokenizer benchmarks, and a clock for the calling thread's CPU time.
#pragma once
#include <cstdint>
#include <cstdio>
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

// Calls count(text), which returns a number of tokens, for all texts. Prints the rate of each round.
template <class Count>
void time_rounds(const std::vector<std::string_view>& texts, int64_t rounds, const Count& count) {
  for (int64_t round = 0; round < rounds; ++round) {
    const double start = thread_seconds();
    size_t size = 0, tokens = 0;
    for (std::string_view text : texts) {
      tokens += count(text);
      size += text.size();
    }
    const double seconds = thread_seconds() - start;
    std::printf("%zu texts, %.1f MB/s, %.2f million tokens/s of one thread's time\n", texts.size(),
                1e-6 * static_cast<double>(size) / seconds, 1e-6 * static_cast<double>(tokens) / seconds);
    std::fflush(stdout);
  }
}

}  // namespace godwit::bench
