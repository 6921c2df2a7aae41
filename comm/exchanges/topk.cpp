#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "comm/exchanges/codecs.h"
#include "comm/wire/select.h"
#include "engine/check.h"

namespace godwit {
namespace {

uint32_t select(std::vector<uint32_t>& magnitudes, int64_t k) {
  const auto kth = magnitudes.begin() + (k - 1);
  std::nth_element(magnitudes.begin(), kth, magnitudes.end(), std::greater<>());
  return *kth;
}

// The k-th largest of the magnitudes. Of many: by a histogram of their leading bits, then among those that share them.
uint32_t kth_largest(std::vector<uint32_t> magnitudes, int64_t k) {
  constexpr int kShift = 19;  // leaves the exponent and four bits of the fraction
  constexpr size_t kMany = 1 << 14;
  if (magnitudes.size() < kMany) return select(magnitudes, k);
  std::array<int64_t, 4096> count{};
  for (const uint32_t size : magnitudes) ++count[size >> kShift];
  uint32_t leading = count.size() - 1;
  for (; k > count[leading]; --leading) k -= count[leading];
  std::vector<uint32_t> sharing;
  for (const uint32_t size : magnitudes)
    if (size >> kShift == leading) sharing.push_back(size);
  return select(sharing, k);
}

// A magnitude that probably k values or a few more reach, by every 64th of them; 0, which all reach, where that is too
// uncertain.
uint32_t probable_bound(const float* x, int64_t n, int64_t k) {
  constexpr int64_t kStride = 64;
  const double expected = static_cast<double>(k) / kStride;
  const int64_t rank = static_cast<int64_t>(expected + 4 * std::sqrt(expected)) + 4;
  if (rank >= n / kStride) return 0;
  std::vector<uint32_t> sample;
  for (int64_t i = 0; i < n; i += kStride) sample.push_back(magnitude_bits(x[i]));
  return kth_largest(std::move(sample), rank);
}

// Code: the k values in order of their places, then the places, of 16 bits in blocks of up to 65536 values, else of 32.
class TopK : public BlockCodec {
 public:
  explicit TopK(double density) : density_(density) {}

  int64_t words(int64_t n) const override { return chosen(n) + (narrow(n) ? (chosen(n) + 1) / 2 : chosen(n)); }

  // The k largest magnitudes; of equal ones those that come first.
  void encode(const float* x, int64_t n, const BlockDraw&, uint32_t* code) const override {
    const int64_t k = chosen(n);
    const std::unique_ptr<uint32_t[]> among(new uint32_t[static_cast<size_t>(n)]);
    int64_t count = places_of_at_least(x, n, probable_bound(x, n, k), among.get());
    if (count < k) count = places_of_at_least(x, n, 0, among.get());
    std::vector<uint32_t> magnitudes;
    for (int64_t j = 0; j < count; ++j) magnitudes.push_back(magnitude_bits(x[among[static_cast<size_t>(j)]]));
    const uint32_t least = kth_largest(magnitudes, k);
    int64_t equal = k;  // how many of the least fit
    for (const uint32_t size : magnitudes) equal -= size > least;
    uint32_t* places = code + k;
    if (narrow(n)) places[(k - 1) / 2] = 0;
    for (size_t j = 0, at = 0; at < static_cast<size_t>(k); ++j) {
      const uint32_t size = magnitudes[j], i = among[j];
      if (size < least || (size == least && equal-- <= 0)) continue;
      code[at] = std::bit_cast<uint32_t>(x[i]);
      if (narrow(n)) places[at / 2] = at % 2 == 0 ? i : places[at / 2] | i << 16;
      else places[at] = i;
      ++at;
    }
  }

  void decode(const uint32_t* code, int64_t n, float* x) const override {
    std::fill_n(x, n, 0.0f);
    each(code, n, [=](int64_t i, float value) { x[i] = value; });
  }

  void add(const uint32_t* code, int64_t n, float factor, float* x, float*) const override {
    each(code, n, [=](int64_t i, float value) { x[i] += factor * value; });
  }

 private:
  int64_t chosen(int64_t n) const {
    return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(density_ * static_cast<double>(n))), 1, n);
  }
  static bool narrow(int64_t n) { return n <= 65536; }

  template <class F>
  void each(const uint32_t* code, int64_t n, const F& f) const {
    const int64_t k = chosen(n);
    const uint32_t* places = code + k;
    for (int64_t at = 0; at < k; ++at) {
      const uint32_t i = narrow(n) ? (places[at / 2] >> (16 * (at % 2)) & 0xFFFF) : places[at];
      f(static_cast<int64_t>(i), std::bit_cast<float>(code[at]));
    }
  }

  double density_;
};

}  // namespace

std::unique_ptr<BlockCodec> topk_codec(double density) {
  check(density > 0 && density <= 1, "topk: density is ", density,
        "; it is the part of the values that is sent, above 0 and at most 1");
  return std::make_unique<TopK>(density);
}

}  // namespace godwit
