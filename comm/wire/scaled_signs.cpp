#include "comm/wire/scaled_signs.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/wire/scaled_signs.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h includes this file once per instruction set.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

static_assert(std::endian::native == std::endian::little, "a word's bytes hold its bits in order");

constexpr int64_t kParts = 16;  // interleaved sums of a tile

// A vector of at most 16 values, so that vectors tile the 32 of a word; and a single value, for the last ones.
using Many = hn::CappedTag<float, kParts>;
using One = hn::CappedTag<float, 1>;

template <class D>
HWY_INLINE uint32_t bits_of(D d, hn::Mask<D> mask) {
  uint64_t bits = 0;
  hn::StoreMaskBits(d, mask, reinterpret_cast<uint8_t*>(&bits));
  return static_cast<uint32_t>(bits);
}

// ±s by the lowest bits.
template <class D>
HWY_INLINE hn::Vec<D> signed_scale(D d, uint32_t bits, float s) {
  const uint64_t word = bits;
  return hn::IfThenElse(hn::LoadMaskBits(d, reinterpret_cast<const uint8_t*>(&word)), hn::Set(d, s), hn::Set(d, -s));
}

// Bits [bit, bit + count), count <= 32; reads no word beyond them.
HWY_INLINE uint32_t bits_at(const uint32_t* words, int64_t bit, int64_t count) {
  const int64_t shift = bit % 32;
  uint64_t pair = words[bit / 32];
  if (shift + count > 32) pair |= uint64_t{words[bit / 32 + 1]} << 32;
  return static_cast<uint32_t>(pair >> shift);
}

// Calls f(d, i) for the lanes of [0, count).
template <class F>
HWY_INLINE void for_values(int64_t count, const F& f) {
  const Many many;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(many));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) f(many, i);
  for (; i < count; ++i) f(One(), i);
}

// Adds y of value i to its part of the tile's sum.
template <class D>
HWY_INLINE void add_to(D d, float* parts, int64_t i, hn::Vec<D> y, bool squares) {
  float* part = parts + i % kParts;
  hn::StoreU(hn::Add(hn::LoadU(d, part), squares ? hn::Mul(y, y) : hn::Abs(y)), d, part);
}

HWY_INLINE float total(float* parts) {
  for (int64_t half = kParts / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) parts[i] += parts[i + half];
  return parts[0];
}

// e ← y = x + e; returns Σ|y| or Σy².
float sum_tile(const float* HWY_RESTRICT x, float* HWY_RESTRICT e, int64_t count, bool squares) {
  alignas(64) float parts[kParts] = {};
  for_values(count, [&](auto d, int64_t i) HWY_ATTR {
    const auto y = hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, e + i));
    hn::StoreU(y, d, e + i);
    add_to(d, parts, i, y, squares);
  });
  return total(parts);
}

// The same of the mean of the senders' values.
float sum_mean_tile(const uint32_t* received, int senders, int64_t stride, const SignTile& tile, float* HWY_RESTRICT e,
                    bool squares) {
  alignas(64) float parts[kParts] = {};
  std::vector<uint32_t> bits(static_cast<size_t>(senders));
  std::vector<float> scales(bits.size());
  for (size_t s = 0; s < scales.size(); ++s)
    scales[s] = std::bit_cast<float>(received[static_cast<int64_t>(s) * stride + tile.slot]);
  for (int64_t i = 0; i < tile.count; i += 32) {
    const int64_t count = std::min<int64_t>(32, tile.count - i);
    for (size_t s = 0; s < bits.size(); ++s)
      bits[s] = bits_at(received + static_cast<int64_t>(s) * stride, tile.bit + i, count);
    for_values(count, [&](auto d, int64_t k) HWY_ATTR {
      auto sum = hn::Zero(d);
      for (size_t s = 0; s < bits.size(); ++s) sum = hn::Add(sum, signed_scale(d, bits[s] >> k, scales[s]));
      const auto mean = hn::Div(sum, hn::Set(d, static_cast<float>(senders)));
      const auto y = hn::Add(mean, hn::LoadU(d, e + i + k));
      hn::StoreU(y, d, e + i + k);
      add_to(d, parts, i + k, y, squares);
    });
  }
  return total(parts);
}

// Sets zero bits in order, from any bit on; the first and the last word may be another thread's too.
class BitWriter {
 public:
  BitWriter(uint32_t* words, int64_t bit) : word_(words + bit / 32), filled_(bit % 32), shared_(filled_ > 0) {}
  HWY_INLINE void put(uint32_t bits, int64_t count) {
    pending_ |= uint64_t{bits} << filled_;
    filled_ += count;
    if (filled_ < 32) return;
    if (shared_) set(static_cast<uint32_t>(pending_));
    else *word_ = static_cast<uint32_t>(pending_);
    shared_ = false;
    ++word_;
    pending_ >>= 32;
    filled_ -= 32;
  }
  void finish() {
    if (filled_ > 0) set(static_cast<uint32_t>(pending_));
  }

 private:
  void set(uint32_t bits) { std::atomic_ref<uint32_t>(*word_).fetch_or(bits, std::memory_order_relaxed); }

  uint32_t* word_;
  int64_t filled_;
  bool shared_;
  uint64_t pending_ = 0;
};

// e holds y: its signs to the message; e ← y − s·sign(y).
void quantize_tile(float* e, const SignTile& tile, float scale, uint32_t* words) {
  BitWriter writer(words, tile.bit);
  for (int64_t i = 0; i < tile.count; i += 32) {
    const int64_t count = std::min<int64_t>(32, tile.count - i);
    uint32_t bits = 0;
    for_values(count, [&](auto d, int64_t k) HWY_ATTR {
      const auto y = hn::LoadU(d, e + i + k);
      const auto plus = hn::Ge(y, hn::Zero(d));
      bits |= bits_of(d, plus) << k;
      hn::StoreU(hn::Sub(y, hn::IfThenElse(plus, hn::Set(d, scale), hn::Set(d, -scale))), d, e + i + k);
    });
    writer.put(bits, count);
  }
  writer.finish();
}

void expand_tile(const uint32_t* words, const SignTile& tile, float* x) {
  const float scale = std::bit_cast<float>(words[tile.slot]);
  for (int64_t i = 0; i < tile.count; i += 32) {
    const int64_t count = std::min<int64_t>(32, tile.count - i);
    const uint32_t bits = bits_at(words, tile.bit + i, count);
    for_values(count,
               [&](auto d, int64_t k) HWY_ATTR { hn::StoreU(signed_scale(d, bits >> k, scale), d, x + i + k); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "engine/parallel.h"

namespace godwit {
namespace {

HWY_EXPORT(sum_tile);
HWY_EXPORT(sum_mean_tile);
HWY_EXPORT(quantize_tile);
HWY_EXPORT(expand_tile);

constexpr int64_t kGrain = 8;  // tiles worth a thread

float scale_of(double sum, int64_t values, SignScale scale) {
  const double mean = sum / static_cast<double>(values);
  return static_cast<float>(scale == SignScale::l2_rms ? std::sqrt(mean) : mean);
}

template <class F>
void for_tiles(const SignTiles& tiles, const F& f) {
  parallel_for(static_cast<int64_t>(tiles.tiles.size()), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(tiles.tiles[static_cast<size_t>(i)], static_cast<size_t>(i));
  });
}

// The first value at fault of all threads.
class FirstBad {
 public:
  void check(float scale, int64_t at) {
    if (std::isfinite(scale)) return;
    int64_t known = first_;
    while (at < known && !first_.compare_exchange_weak(known, at)) {
    }
  }
  int64_t result() const { return first_ == kNone ? -1 : first_.load(); }

 private:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::atomic<int64_t> first_ = kNone;
};

// sum(tile) leaves y in e.
template <class Sum>
int64_t compress(float* e, const SignTiles& tiles, SignScale scale, uint32_t* words, const Sum& sum) {
  FirstBad bad;
  const auto quantize = [&](const SignTile& tile, size_t i, float s) {
    bad.check(s, tile.at);
    // Tiles of a block may share a slot: the first of them writes it.
    if (i == 0 || tiles.tiles[i - 1].slot != tile.slot) words[tile.slot] = std::bit_cast<uint32_t>(s);
    HWY_DYNAMIC_DISPATCH(quantize_tile)(e + tile.at, tile, s, words);
  };
  if (tiles.tiles.size() == tiles.sizes.size()) {  // while a tile is in the first-level cache
    for_tiles(tiles, [&](const SignTile& tile, size_t i) {
      quantize(tile, i, scale_of(static_cast<double>(sum(tile)), tile.count, scale));
    });
    return bad.result();
  }
  std::vector<float> sums(tiles.tiles.size()), scales(tiles.sizes.size());
  for_tiles(tiles, [&](const SignTile& tile, size_t i) { sums[i] = sum(tile); });
  std::vector<double> totals(tiles.sizes.size());
  for (size_t i = 0; i < sums.size(); ++i)
    totals[static_cast<size_t>(tiles.tiles[i].block)] += static_cast<double>(sums[i]);
  for (size_t b = 0; b < totals.size(); ++b) scales[b] = scale_of(totals[b], tiles.sizes[b], scale);
  for_tiles(tiles, [&](const SignTile& tile, size_t i) {
    quantize(tile, i, scales[static_cast<size_t>(tile.block)]);
  });
  return bad.result();
}

}  // namespace

void SignTiles::add(int64_t at, int64_t count, int64_t bit, int64_t slot, int64_t block) {
  const auto b = static_cast<size_t>(block);
  if (sizes.size() <= b) sizes.resize(b + 1);
  sizes[b] += count;
  for (int64_t done = 0; done < count; done += SignTile::kValues)
    tiles.push_back({at + done, bit + done, slot, static_cast<int32_t>(block),
                     static_cast<int32_t>(std::min(SignTile::kValues, count - done))});
}

int64_t compress_signs(Cpu, const float* x, float* e, const SignTiles& tiles, SignScale scale, uint32_t* words) {
  return compress(e, tiles, scale, words, [&](const SignTile& tile) {
    return HWY_DYNAMIC_DISPATCH(sum_tile)(x + tile.at, e + tile.at, tile.count, scale == SignScale::l2_rms);
  });
}

int64_t compress_mean_of_signs(Cpu, const uint32_t* received, int senders, int64_t stride, float* e,
                               const SignTiles& tiles, SignScale scale, uint32_t* words) {
  return compress(e, tiles, scale, words, [&](const SignTile& tile) {
    return HWY_DYNAMIC_DISPATCH(sum_mean_tile)(received, senders, stride, tile, e + tile.at,
                                               scale == SignScale::l2_rms);
  });
}

void expand_signs(Cpu, const uint32_t* words, const SignTiles& tiles, float* x) {
  for_tiles(tiles, [&](const SignTile& tile, size_t) {
    HWY_DYNAMIC_DISPATCH(expand_tile)(words, tile, x + tile.at);
  });
}

}  // namespace godwit
#endif  // HWY_ONCE
