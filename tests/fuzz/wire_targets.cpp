// Messages of other ranks: payloads of compressors, and the wire formats below them.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "comm/compress/int8.h"
#include "comm/compress/levels.h"
#include "comm/compress/wire/half.h"
#include "comm/compress/wire/loco_codes.h"
#include "comm/compress/wire/scaled_signs.h"
#include "comm/compress/wire/sign_bits.h"
#include "comm/exchange/one_bit_sgd.h"
#include "comm/exchange/qsgd.h"
#include "comm/exchange/terngrad.h"
#include "comm/exchange/topk.h"
#include "tests/fuzz/target.h"

namespace godwit::fuzz {
namespace {

// `count` values of the input; 0 beyond its end.
template <class T>
std::vector<T> values_of(const Input& input, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  const size_t bytes = std::min(input.bytes.size(), values.size() * sizeof(T));
  if (bytes > 0) std::memcpy(values.data(), input.bytes.data(), bytes);
  return values;
}

struct Chosen {
  std::unique_ptr<Compressor> compressor;
  int64_t n;  // values
};

// Two bytes: the compressor, among the first `compressors`, and the number of values.
Chosen chosen(Input& input, int compressors) {
  const int which = input.byte() % compressors, n = input.byte() + 1;
  switch (which) {
    case 0:
      return {qsgd_compressor(127), n};
    case 1:
      return {qsgd_compressor(1), n};
    case 2:
      return {terngrad_compressor(2.5), n};
    case 3:
      return {int8_compressor(), n};
    case 4:
      return {int4_compressor(), n};
    case 5:
      return {one_bit_compressor(), n};
    case 6:
      return {topk_compressor(0.1), n};
    default:
      return {topk_compressor(1e-4), (1 << 16) + n};  // with indices of 32 bits
  }
}

// A corrupt payload.
void payload(Input input) {
  const auto [compressor, n] = chosen(input, 8);
  const std::vector<uint32_t> words = values_of<uint32_t>(input, compressor->payload_words(n));
  std::vector<float> x(static_cast<size_t>(n)), sum(x), scratch(x);
  compressor->decode(words.data(), n, x.data());
  compressor->add(words.data(), n, 1, sum.data(), scratch.data());
}

// Hostile values.
void gradient(Input input) {
  const auto [compressor, n] = chosen(input, 7);
  const std::vector<float> values = values_of<float>(input, n);
  std::vector<uint32_t> words(static_cast<size_t>(compressor->payload_words(n)));
  if (!compressor->encode_finite(values.data(), n, {{1, 2, 3, 4}, 0}, words.data())) return;
  std::vector<float> x(values.size()), sum(x), scratch(x);
  compressor->decode(words.data(), n, x.data());
  compressor->add(words.data(), n, 1, sum.data(), scratch.data());
  const auto finite = [](float v) { return std::isfinite(v); };
  const auto in_range = [](float v) { return std::abs(v) < 1e38f; };  // rounding may exceed the largest float32
  require(std::ranges::all_of(values, finite), "only finite values have a payload");
  require(!std::ranges::all_of(values, in_range) || std::ranges::all_of(x, finite), "decoded values are finite");
  require(x == sum, "add() adds what decode() returns");
}

void wire_signs(Input input) {
  const int64_t n = input.byte() + 1, words = sign_words(n), senders = 3;
  std::vector<uint32_t> bits = values_of<uint32_t>(input, senders * (words + 1)), packed(static_cast<size_t>(words));
  std::vector<float> x(static_cast<size_t>(n));
  std::vector<int16_t> sums(x.size());
  unpack_signs(Cpu{}, bits.data(), x.data(), n);
  pack_signs(Cpu{}, x.data(), packed.data(), n);
  const uint32_t used = UINT32_MAX >> (32 * words - n);
  require(packed.back() == (bits[static_cast<size_t>(words) - 1] & used), "packed signs are those unpacked");
  sum_signs(Cpu{}, bits.data(), senders, words + 1, sums.data(), n);
  for (const int16_t sum : sums) require(std::abs(sum) <= senders, "sums are at most the number of senders");
  SignTiles tiles;
  tiles.add(0, n, 0, words, 0);
  expand_signs(Cpu{}, bits.data(), tiles, x.data());
}

void wire_codes(Input input) {
  const int bits = 1 << (input.byte() % 4), n = input.byte() + 1, senders = 2;
  const int64_t stride = (bits * n + 31) / 32;
  const std::vector<uint32_t> words = values_of<uint32_t>(input, senders * stride);
  std::vector<int32_t> sums(static_cast<size_t>(n));
  if (bits != 2) {  // LoCo has codes of 1, 4 and 8 bits
    loco::sum_codes(words.data(), stride, senders, bits, n, sums.data());
    for (const int32_t sum : sums)
      require(std::abs(sum) <= senders << (bits - 1), "sums are at most those of the codes");
  }
  std::vector<float> x(sums.size());
  const int levels = bits == 8 ? 127 : bits == 4 ? 7 : 1;
  decode_levels(words.data(), bits == 1 ? n / 2 : n, 1, levels, x.data());
  for (const float level : x) require(std::abs(level) <= levels + 1, "levels have their number of bits");
}

void wire_halves(Input input) {
  const DType type = input.byte() % 2 ? DType::bf16 : DType::f16;
  const int64_t n = input.byte() + 1;
  const std::vector<uint16_t> bits = values_of<uint16_t>(input, n);
  const Tensor halves({n}, type, kCpu), x({n}, DType::f32, kCpu), mean({n}, type, kCpu);
  std::memcpy(halves.raw(), bits.data(), bits.size() * sizeof(uint16_t));
  from_half(halves, x);
  const Tensor again = to_half(x, type, "fuzz");
  for (int64_t i = 0; i < n; ++i)
    require(std::isnan(x.item(i)) || again.item(i) == x.item(i), "16-bit values are rounded to themselves");
  mean_of_halves(halves.view({1, n}), 1, mean);
}

}  // namespace

std::vector<Target> wire_targets() {
  return {{"payload", payload},
          {"gradient", gradient},
          {"wire_signs", wire_signs},
          {"wire_codes", wire_codes},
          {"wire_halves", wire_halves}};
}

}  // namespace godwit::fuzz
