#include "comm/exchange/topk.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "comm/compress/wire/select.h"
#include "comm/exchange/shared_options.h"
#include "engine/check.h"

namespace godwit {
namespace {

constexpr uint32_t kInfiniteMagnitude = 0x7F800000;  // magnitude_bits(∞)

// The k-th largest value, 1 <= k <= sizes.size(): finds its bin in a histogram, then selects within the bin.
uint32_t kth_largest(const std::vector<uint32_t>& sizes, int64_t k) {
  constexpr int kBinBits = 12, kBins = 1 << kBinBits;
  uint32_t base = UINT32_MAX, high = 0;
  for (const uint32_t size : sizes) base = std::min(base, size), high = std::max(high, size);
  const int shift = std::max(0, static_cast<int>(std::bit_width(high - base)) - kBinBits);
  std::array<int32_t, kBins> count{};
  for (const uint32_t size : sizes) ++count[(size - base) >> shift];
  uint32_t bin = kBins - 1;
  for (; k > count[bin]; --bin) k -= count[bin];
  std::vector<uint32_t> sharing;
  for (const uint32_t size : sizes)
    if ((size - base) >> shift == bin) sharing.push_back(size);
  const auto kth = sharing.begin() + (k - 1);
  std::nth_element(sharing.begin(), kth, sharing.end(), std::greater<>());
  return *kth;
}

// Estimates from a sample a magnitude that k values reach with high probability (a margin of four standard deviations).
// Returns the smallest magnitude above 0 if the sample is too small, or if most values are 0, as in an embedding's
// gradient.
uint32_t probable_bound(const float* x, int64_t n, int64_t k) {
  const int64_t stride = std::clamp<int64_t>(k / 32, 16, 1024) | 1;  // odd: samples all columns of even rows
  const double expected = static_cast<double>(k) / static_cast<double>(stride);
  const int64_t rank = static_cast<int64_t>(expected + 4 * std::sqrt(expected)) + 4;
  if (rank >= n / stride) return 1;
  std::vector<uint32_t> sample;
  sample.reserve(static_cast<size_t>(n / stride + 1));
  for (int64_t i = 0; i < n; i += stride) sample.push_back(magnitude_bits(x[i]));
  return std::max(1u, kth_largest(sample, rank));
}

struct Candidates {
  std::vector<uint32_t> indices, values, sizes;  // ascending indices; bits of the values; bits without the sign

  void add(uint32_t index, uint32_t value) {
    indices.push_back(index), values.push_back(value), sizes.push_back(value & 0x7FFFFFFF);
  }
};

void find(const float* x, int64_t n, uint32_t least, Candidates& found) {
  constexpr int64_t kPiece = 4096;  // values that fit the L1 cache
  std::array<uint32_t, kPiece + kIndicesSlack> indices;
  for (int64_t at = 0; at < n; at += kPiece) {
    const auto count =
        static_cast<size_t>(indices_of_at_least(x + at, std::min(kPiece, n - at), least, indices.data()));
    const size_t known = found.indices.size();
    for (auto* all : {&found.indices, &found.values, &found.sizes}) all->resize(known + count);
    for (size_t j = 0; j < count; ++j) {
      const float value = x[at + indices[j]];
      found.indices[known + j] = static_cast<uint32_t>(at) + indices[j];
      found.values[known + j] = std::bit_cast<uint32_t>(value);
      found.sizes[known + j] = magnitude_bits(value);
    }
  }
}

// k candidates: `found`, which contains all nonzero values, and the first zeros.
Candidates with_zeros(const float* x, int64_t k, const Candidates& found) {
  Candidates all;
  const size_t known = found.indices.size();
  size_t zeros = static_cast<size_t>(k) - known, j = 0;
  for (uint32_t i = 0; zeros > 0; ++i) {
    const bool zero = j == known || found.indices[j] != i;
    all.add(i, std::bit_cast<uint32_t>(x[i]));
    zero ? --zeros : ++j;
  }
  for (; j < known; ++j) all.add(found.indices[j], found.values[j]);
  return all;
}

// Code: the k values in order of their indices, then the indices: 16 bits each in blocks of up to 65536 values,
// otherwise 32.
class TopK : public Compressor {
 public:
  explicit TopK(double density) : density_(density) {}

  int64_t payload_words(int64_t n) const override {
    check(n <= UINT32_MAX, "topk: a block has ", n,
          " values, expected at most 2³²−1; use a smaller exchange.block_size");
    return chosen(n) + (narrow(n) ? (chosen(n) + 1) / 2 : chosen(n));
  }

  void encode(const float* x, int64_t n, const BlockRng& rng, uint32_t* payload) const override {
    encode_finite(x, n, rng, payload);
  }

  // Sends the k values of largest magnitude, and the first of equal magnitudes.
  bool encode_finite(const float* x, int64_t n, const BlockRng&, uint32_t* payload) const override {
    const int64_t k = chosen(n);
    Candidates among;
    find(x, n, probable_bound(x, n, k), among);
    for (const uint32_t size : among.sizes)  // non-finite values are larger than all finite ones
      if (size >= kInfiniteMagnitude) return false;
    if (std::ssize(among.sizes) < k) among = {}, find(x, n, 1, among);
    if (std::ssize(among.sizes) < k) among = with_zeros(x, k, among);
    const uint32_t least = kth_largest(among.sizes, k);
    int64_t equal = k;  // number of values of magnitude `least` to send
    for (const uint32_t size : among.sizes) equal -= size > least;
    uint32_t* indices = payload + k;
    if (narrow(n)) indices[(k - 1) / 2] = 0;
    for (size_t j = 0, at = 0; at < static_cast<size_t>(k); ++j) {  // branch-free; overwrites rejected ones
      const uint32_t size = among.sizes[j], i = among.indices[j];
      payload[at] = among.values[j];
      if (narrow(n)) indices[at / 2] = (indices[at / 2] & 0xFFFF * (at % 2)) | i << 16 * (at % 2);
      else indices[at] = i;
      at += (size > least) | ((size == least) & (equal > 0));
      equal -= size == least;
    }
    return true;
  }

  void decode(const uint32_t* payload, int64_t n, float* x) const override {
    std::fill_n(x, n, 0.0f);
    each(payload, n, [=](int64_t i, float value) { x[i] = value; });
  }

  void add(const uint32_t* payload, int64_t n, float factor, float* x, float*) const override {
    each(payload, n, [=](int64_t i, float value) { x[i] += factor * value; });
  }

  CodeFormat format() const override { return LargestFormat{density_}; }

 private:
  int64_t chosen(int64_t n) const { return largest_chosen(density_, n); }
  static bool narrow(int64_t n) { return n <= kNarrowIndices; }

  template <class F>
  void each(const uint32_t* payload, int64_t n, const F& f) const {
    const int64_t k = chosen(n);
    const uint32_t* indices = payload + k;
    for (int64_t at = 0; at < k; ++at) {
      const uint32_t i = narrow(n) ? (indices[at / 2] >> (16 * (at % 2)) & 0xFFFF) : indices[at];
      check(i < n, "topk: a payload has index ", i, ", but the block has ", n, " values; the message is corrupt");
      f(static_cast<int64_t>(i), std::bit_cast<float>(payload[at]));
    }
  }

  double density_;
};

BlockExchangeOptions blocks_of(const TopKOptions& o) {
  return block_options("topk", o.block_size, o.reply, o.error_feedback);
}

}  // namespace

std::unique_ptr<Compressor> topk_compressor(double density) {
  check(density > 0 && density <= 1, "topk: density is ", density,
        "; expected a fraction of the values above 0 and at most 1");
  return std::make_unique<TopK>(density);
}

void TopKOptions::describe(OptionList& list) {
  add_density(list, density);
  add_block_size(list, block_size);
  add_reply(list, reply);
  add_error_feedback(list, error_feedback);
}

void TopKOptions::check() const { blocks_of(*this).check(); }

const ExchangeMethod& topk_method() {
  static const ExchangeMethod method{
      .name = "topk",
      .help = "values of largest magnitude of each parameter and their positions, with error feedback",
      .paper = "Stich et al., Sparsified SGD with Memory, arXiv:1809.07599, 2018",
      .bytes =
          "one float32 and a 16-bit position (32 bits in blocks of more than 65,536 values) per value sent, to "
          "every worker",
      .defaults = TopKOptions{},
      .make = [](const AnyOptions& options, const ExchangeInputs& in) {
        const TopKOptions& o = options.as<TopKOptions>();
        return block_exchange(topk_compressor(o.density), blocks_of(o), in.buckets, in.comm, in.seed);
      }};
  return method;
}

}  // namespace godwit
