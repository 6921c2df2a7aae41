// Fuzz targets: each passes untrusted bytes to one reader. libFuzzer (fuzz.cpp) and corpus_test.cpp run them.
#pragma once
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace godwit::fuzz {

// Bytes of one input. The first bytes may choose options.
struct Input {
  std::span<const uint8_t> bytes;

  uint8_t byte();             // removes the first byte; 0 if there is none
  Input first(size_t count);  // removes up to `count` bytes
  std::string_view text() const;
};

struct Target {
  const char* name;           // also the folder of its inputs in tests/fuzz/corpus
  void (*read)(Input input);  // throws Error or DecodeError for input that a reader refuses
};

std::vector<Target> config_targets(), image_targets(), tensor_targets(), text_targets(), wire_targets();
std::vector<Target> all_targets();  // in order of names

// Runs a target; false if the reader refuses the input. The message must be one printable line. Other exceptions are
// defects.
bool run(const Target& target, std::span<const uint8_t> bytes);

// A property that holds for all inputs; throws std::logic_error.
inline void require(bool holds, const char* property) {
  if (!holds) throw std::logic_error(std::string("fuzz: does not hold: ") + property);
}

std::string folder();                          // a folder of this process, in memory if the system has /dev/shm
std::string path_of(const std::string& name);  // path in folder()
// Writes a file to folder(); returns its path.
std::string file_of(const Input& input, const std::string& name = "input");

}  // namespace godwit::fuzz
