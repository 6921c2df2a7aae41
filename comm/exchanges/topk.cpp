#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "comm/exchanges/codecs.h"
#include "engine/check.h"

namespace godwit {
namespace {

// Of positive numbers the larger one has the larger bits.
uint32_t magnitude(float x) { return std::bit_cast<uint32_t>(x) & 0x7FFFFFFF; }

// The k-th largest magnitude of x[n]: by a histogram of the leading bits, then among those that share them.
uint32_t kth_largest(const float* x, int64_t n, int64_t k) {
  constexpr int kShift = 19;  // leaves the exponent and four bits of the fraction
  std::array<int64_t, 4096> count{};
  for (int64_t i = 0; i < n; ++i) ++count[magnitude(x[i]) >> kShift];
  uint32_t leading = count.size() - 1;
  for (; k > count[leading]; --leading) k -= count[leading];
  std::vector<uint32_t> sharing;
  sharing.reserve(static_cast<size_t>(count[leading]));
  for (int64_t i = 0; i < n; ++i)
    if (magnitude(x[i]) >> kShift == leading) sharing.push_back(magnitude(x[i]));
  const auto kth = sharing.begin() + (k - 1);
  std::nth_element(sharing.begin(), kth, sharing.end(), std::greater<>());
  return *kth;
}

// Code: the k values in order of their places, then the places, of 16 bits in blocks of up to 65536 values, else of 32.
class TopK : public BlockCodec {
 public:
  explicit TopK(double density) : density_(density) {}

  int64_t words(int64_t n) const override { return chosen(n) + (narrow(n) ? (chosen(n) + 1) / 2 : chosen(n)); }

  // The k largest magnitudes; of equal ones those that come first.
  void encode(const float* x, int64_t n, const BlockDraw&, uint32_t* code) const override {
    const int64_t k = chosen(n);
    const uint32_t least = kth_largest(x, n, k);
    int64_t equal = k;  // how many of the least fit
    for (int64_t i = 0; i < n; ++i) equal -= magnitude(x[i]) > least;
    uint32_t* places = code + k;
    if (narrow(n)) places[(k - 1) / 2] = 0;
    for (int64_t i = 0, at = 0; at < k; ++i) {
      const uint32_t size = magnitude(x[i]);
      if (size < least || (size == least && equal-- <= 0)) continue;
      code[at] = std::bit_cast<uint32_t>(x[i]);
      narrow(n) ? store_narrow(places, at, i) : static_cast<void>(places[at] = static_cast<uint32_t>(i));
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
  static void store_narrow(uint32_t* places, int64_t at, int64_t i) {
    uint32_t& word = places[at / 2];
    word = at % 2 == 0 ? static_cast<uint32_t>(i) : word | static_cast<uint32_t>(i) << 16;
  }

  template <class F>
  void each(const uint32_t* code, int64_t n, const F& f) const {
    const int64_t k = chosen(n);
    const uint32_t* places = code + k;
    for (int64_t at = 0; at < k; ++at) {
      const uint32_t i = narrow(n) ? places[at / 2] >> (16 * (at % 2)) & 0xFFFF : places[at];
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
