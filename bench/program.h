// main() of a benchmark: --help, error messages and numeric arguments.
#pragma once
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "engine/check.h"

namespace godwit::bench {

// Calls body() and returns the exit code. Prints `usage` for --help or -h. For an exception, prints the program's name
// and the message, and returns 1.
template <class F>
int run_program(int argc, char** argv, const char* usage, const F& body) {
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "--help") == 0 || std::strcmp(argv[i], "-h") == 0)
      return std::printf("%s\n", usage) > 0 && std::fflush(stdout) == 0 ? 0 : 1;
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    const char* slash = std::strrchr(argv[0], '/');
    std::fprintf(stderr, "%s: %s\n", slash ? slash + 1 : argv[0], error.what());
    return 1;
  }
}

// Parses a whole number that is at least `least`.
inline int64_t whole_number(const std::string& text, const char* name, int64_t least = 1) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  check(error == std::errc() && stop == end && value >= least, name, " is '", text,
        "'; expected a whole number of at least ", least, " (--help shows the arguments)");
  return value;
}

}  // namespace godwit::bench
