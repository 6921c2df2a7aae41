// Fuzz targets: each target passes untrusted bytes to one reader. libFuzzer (fuzz.cpp) and corpus_test.cpp run the
// targets.
#pragma once
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace godwit::fuzz {

// The bytes of one input. The first bytes may choose options.
struct Input {
  std::span<const uint8_t> bytes;

  uint8_t byte();             // removes and returns the first byte; 0 if there is none
  Input first(size_t count);  // removes and returns up to `count` bytes
  std::string_view text() const;
};

struct Target {
  const char* name;           // also the name of its folder in tests/fuzz/corpus
  void (*read)(Input input);  // throws Error or DecodeError for input that the reader rejects
};

std::vector<Target> config_targets(), image_targets(), tensor_targets(), text_targets(), wire_targets();
std::vector<Target> all_targets();  // ordered by name

// Runs a target. Returns false if the reader rejects the input; the message must then be one printable line. Other
// exceptions are defects.
bool run(const Target& target, std::span<const uint8_t> bytes);

// Checks a property that must hold for all inputs. Throws std::logic_error if it does not.
inline void require(bool holds, const char* property) {
  if (!holds) throw std::logic_error(std::string("fuzz: does not hold: ") + property);
}

std::string folder();                          // a folder of this process, in memory if the system has /dev/shm
std::string path_of(const std::string& name);  // path in folder()
// Writes a file to folder() and returns its path.
std::string file_of(const Input& input, const std::string& name = "input");

}  // namespace godwit::fuzz
