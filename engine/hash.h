// Hash: 64-bit FNV-1a. Ranks use it to compare layouts and replicas.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>

#include "engine/tensor.h"

namespace godwit {

// Hashes whole words instead of bytes. Each step is a bijection of the state, so changing one word always changes the
// result.
class Hash {
 public:
  void add(uint64_t word) { state_ = (state_ ^ word) * 0x100000001b3u; }  // hashes a word
  void add(const std::string& text) {  // hashes the length and the bytes
    add(text.size());
    for (char c : text) add(static_cast<uint64_t>(static_cast<unsigned char>(c)));
  }
  // Hashes the bits of the first `count` elements.
  void add(const Tensor& values, int64_t count) {
    const Tensor here = values.range(0, count).to(kCpu);
    if (size_of(here.dtype()) == 8) add_words<uint64_t>(here.raw(), count);
    else if (size_of(here.dtype()) == 4) add_words<uint32_t>(here.raw(), count);
    else if (size_of(here.dtype()) == 2) add_words<uint16_t>(here.raw(), count);
    else add_words<uint8_t>(here.raw(), count);
  }
  uint64_t value() const { return state_; }  // hash of all words added so far

 private:
  template <class Word>
  void add_words(const void* data, int64_t count) {
    const auto* bytes = static_cast<const std::byte*>(data);
    for (int64_t i = 0; i < count; ++i) {
      Word word;
      std::memcpy(&word, bytes + i * static_cast<int64_t>(sizeof(Word)), sizeof(Word));
      add(word);
    }
  }

  uint64_t state_ = 0xcbf29ce484222325u;
};

}  // namespace godwit
