// Philox4x32-10 (Salmon et al. 2011): a counter-based random generator. Draws do not depend on threads, ranks or
// buckets.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace godwit {

// The purpose of a draw. It is one word of the counter, so different uses never share random numbers.
enum class Purpose : uint32_t {
  worker_sign = 1,
  server_sign = 2,
  initialize = 3,
  shuffle = 4,
  augment = 5,
  dropout = 6,
  text = 7,
  mask = 8,
  gradient_code = 9,   // rounding of the payloads from workers
  mean_code = 10,      // rounding of the means from owners
  error_code = 11,     // rounding of low-precision residuals
  coordinates = 12,    // coordinates that all ranks choose identically
  sample = 13,         // tokens of generated text
  test = 255
};

// Ten rounds of Philox4x32: computes four random words from a counter and a key.
constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0], b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// Uniform in [0, 1) with 24 bits.
constexpr float to_unit(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

// The random word of element e of the whole parameter vector: word e mod 4 of Philox with key = seed and counter =
// (e/4, step, purpose, sender).
constexpr uint32_t random_word(uint64_t seed, int64_t element, uint32_t step, Purpose purpose, uint32_t sender) {
  return philox4x32({static_cast<uint32_t>(element >> 2), step, static_cast<uint32_t>(purpose), sender},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)})[static_cast<size_t>(element & 3)];
}

// Sequential draws for one use, keyed by (seed, purpose, a, b). Streams with different keys are independent.
class RandomStream {
 public:
  RandomStream(uint64_t seed, Purpose purpose, uint32_t a = 0, uint32_t b = 0);  // starts at the first word
  uint32_t next();  // the next word, uniform in [0, 2³²)
  float uniform() { return to_unit(next()); }  // [0, 1)
  uint32_t below(uint32_t n);                  // unbiased integer in [0, n); throws for n = 0
  double normal();                             // standard normal (Box–Muller in double)

 private:
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> words_{};
  int used_ = 4;
};

}  // namespace godwit
