#include "comm/compress/wire/scaled_signs.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "engine/row_sum.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/compress/wire/scaled_signs.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h includes this file once per instruction set.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

static_assert(std::endian::native == std::endian::little, "a word's bytes hold its bits in order");

constexpr int64_t kParts = 16;  // interleaved sums per tile

// Many: a vector of at most 16 values, so that whole vectors fill a 32-bit word. One: a single value, for the rest.
using Many = hn::CappedTag<float, kParts>;
using One = hn::CappedTag<float, 1>;

template <class D>
HWY_INLINE uint32_t bits_of(D d, hn::Mask<D> mask) {
  uint64_t bits = 0;
  hn::StoreMaskBits(d, mask, reinterpret_cast<uint8_t*>(&bits));
  return static_cast<uint32_t>(bits);
}

// Mask from the lowest bits.
template <class D>
HWY_INLINE hn::Mask<D> mask_of(D d, uint64_t bits) {
  return hn::LoadMaskBits(d, reinterpret_cast<const uint8_t*>(&bits));
}

// Mask from bit `first` on; must not cross a byte boundary unless it consists of whole bytes.
template <class D>
HWY_INLINE hn::Mask<D> mask_at(D d, const uint8_t* bits, int64_t first) {
  if constexpr (hn::MaxLanes(D()) >= 8) return hn::LoadMaskBits(d, bits + first / 8);
  return mask_of(d, bits[first / 8] >> first % 8);
}

// Bits [bit, bit + count), count <= 32; reads no other word.
HWY_INLINE uint32_t bits_at(const uint32_t* words, int64_t bit, int64_t count) {
  const int64_t shift = bit % 32;
  uint64_t pair = words[bit / 32];
  if (shift + count > 32) pair |= uint64_t{words[bit / 32 + 1]} << 32;
  return static_cast<uint32_t>(pair >> shift);
}

// Calls f(d, i) for all values i of [0, count), a vector at a time.
template <class F>
HWY_INLINE void for_values(int64_t count, const F& f) {
  const Many many;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(many));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) f(many, i);
  for (; i < count; ++i) f(One(), i);
}

// Σ|y| or Σy² in kParts parts that stay in registers; y(d, i) returns the lanes from value i on.
template <class Y>
HWY_INLINE float sum_values(int64_t count, bool squares, const Y& y) {
  const Many many;
  const int64_t rows = count / kParts * kParts;
  const auto size = [&](auto d, int64_t i) HWY_ATTR {
    const auto v = y(d, i);
    return squares ? hn::Mul(v, v) : hn::Abs(v);
  };
  alignas(64) float parts[kParts];
  for (int64_t part = 0; part < kParts; part += static_cast<int64_t>(hn::Lanes(many))) {
    auto sum = hn::Zero(many);
    for (int64_t i = part; i < rows; i += kParts) sum = hn::Add(sum, size(many, i));
    hn::StoreU(sum, many, parts + part);
  }
  for (int64_t i = rows; i < count; ++i) parts[i % kParts] += hn::GetLane(size(One(), i));
  return fold_lanes(parts);
}

// e ← y = x + e; returns Σ|y| or Σy².
float sum_tile(const float* HWY_RESTRICT x, float* HWY_RESTRICT e, int64_t count, bool squares) {
  return sum_values(count, squares, [&](auto d, int64_t i) HWY_ATTR {
    const auto y = hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, e + i));
    hn::StoreU(y, d, e + i);
    return y;
  });
}

constexpr int64_t kTileWords = SignTile::kValues / 64;

// Copies a tile's signs so that they begin at bit 0; reads no word beyond them.
HWY_INLINE void align_bits(const uint32_t* HWY_RESTRICT words, const SignTile& tile, uint32_t* HWY_RESTRICT bits) {
  const int64_t count = (tile.count + 31) / 32, shift = tile.bit % 32;
  words += tile.bit / 32;
  if (shift == 0) return static_cast<void>(std::copy_n(words, count, bits));
  for (int64_t w = 0; w + 1 < count; ++w) bits[w] = words[w] >> shift | words[w + 1] << (32 - shift);
  bits[count - 1] = bits_at(words, shift + 32 * (count - 1), tile.count - 32 * (count - 1));
}

// Mean of the senders' decoded values; writes up to 63 values beyond the tile.
HWY_INLINE void mean_of_signs(const uint32_t* received, int senders, int64_t stride, const SignTile& tile,
                              float* mean) {
  std::vector<uint64_t> bits(static_cast<size_t>(senders * kTileWords));
  std::vector<float> scales(static_cast<size_t>(senders));
  for (int64_t s = 0; s < senders; ++s) {
    align_bits(received + s * stride, tile, reinterpret_cast<uint32_t*>(bits.data() + s * kTileWords));
    scales[static_cast<size_t>(s)] = std::bit_cast<float>(received[s * stride + tile.slot]);
  }
  const Many d;
  const auto divisor = hn::Set(d, static_cast<float>(senders)), factor = hn::Set(d, 1 / static_cast<float>(senders));
  const bool exact = std::has_single_bit(static_cast<uint32_t>(senders));  // multiplying by 1/senders is then exact
  for (int64_t i = 0; i < tile.count; i += 64)
    for (int64_t part = 0; part < kParts; part += static_cast<int64_t>(hn::Lanes(d))) {
      auto a = hn::Zero(d), b = a, c = a, e = a;
      const uint64_t* word = bits.data() + i / 64;
      for (const float scale : scales) {
        const auto plus = hn::Set(d, scale), minus = hn::Set(d, -scale);
        const auto add = [&](hn::Vec<Many>& sum, int64_t shift) HWY_ATTR {
          sum = hn::Add(sum, hn::IfThenElse(mask_at(d, reinterpret_cast<const uint8_t*>(word), shift), plus, minus));
        };
        add(a, part), add(b, part + 16), add(c, part + 32), add(e, part + 48);
        word += kTileWords;
      }
      const auto put = [&](hn::Vec<Many> sum, int64_t at) HWY_ATTR {
        hn::StoreU(exact ? hn::Mul(sum, factor) : hn::Div(sum, divisor), d, mean + i + part + at);
      };
      put(a, 0), put(b, 16), put(c, 32), put(e, 48);
    }
}

// sum_tile() with x = the mean of the senders' decoded values.
float sum_mean_tile(const uint32_t* received, int senders, int64_t stride, const SignTile& tile, float* e,
                    bool squares) {
  HWY_ALIGN float mean[SignTile::kValues];
  mean_of_signs(received, senders, stride, tile, mean);
  return sum_tile(mean, e, tile.count, squares);
}

// Writes bits in order, starting at any bit, over bits that are 0. Other threads may write to the first and last word.
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

// e holds y: writes its signs to the message and sets e ← y − s·sign(y).
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
    for_values(count, [&](auto d, int64_t k) HWY_ATTR {
      hn::StoreU(hn::IfThenElse(mask_of(d, bits >> k), hn::Set(d, scale), hn::Set(d, -scale)), d, x + i + k);
    });
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

constexpr int64_t kGrain = 8;  // minimum number of tiles per thread

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

// Smallest index with a non-finite scale, over all threads.
class FirstBad {
 public:
  void check(float scale, int64_t at) {
    if (std::isfinite(scale)) return;
    int64_t known = first_;
    while (at < known && !first_.compare_exchange_weak(known, at)) {
    }
  }
  Tensor result() const {  // for first_fault()
    const Tensor fault({1}, DType::i64, kCpu);
    fault.data<int64_t>()[0] = kFarAway - first_;
    return fault;
  }

 private:
  std::atomic<int64_t> first_ = kFarAway;
};

// sum(tile) writes y to e and returns the tile's sum.
template <class Sum>
Tensor compress(float* e, const SignTiles& tiles, SignScale scale, uint32_t* words, const Sum& sum) {
  FirstBad bad;
  const auto quantize = [&](const SignTile& tile, size_t i, float s) {
    bad.check(s, tile.at);
    // Tiles of a block may share a slot; the first one writes it.
    if (i == 0 || tiles.tiles[i - 1].slot != tile.slot) words[tile.slot] = std::bit_cast<uint32_t>(s);
    HWY_DYNAMIC_DISPATCH(quantize_tile)(e + tile.at, tile, s, words);
  };
  if (tiles.tiles.size() == tiles.sizes.size()) {  // one pass, while each tile is in the L1 cache
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

Tensor compress_signs(Cpu, const float* x, float* e, const SignTiles& tiles, SignScale scale, uint32_t* words) {
  return compress(e, tiles, scale, words, [&](const SignTile& tile) {
    return HWY_DYNAMIC_DISPATCH(sum_tile)(x + tile.at, e + tile.at, tile.count, scale == SignScale::l2_rms);
  });
}

Tensor compress_mean_of_signs(Cpu, const uint32_t* received, int senders, int64_t stride, float* e,
                              const SignTiles& tiles, SignScale scale, uint32_t* words) {
  return compress(e, tiles, scale, words, [&](const SignTile& tile) {
    return HWY_DYNAMIC_DISPATCH(sum_mean_tile)(received, senders, stride, tile, e + tile.at,
                                               scale == SignScale::l2_rms);
  });
}

int64_t first_fault(const Tensor& fault) {
  const int64_t found = fault.to_vector<int64_t>()[0];
  return found == 0 ? -1 : kFarAway - found;
}

void expand_signs(Cpu, const uint32_t* words, const SignTiles& tiles, float* x) {
  for_tiles(tiles, [&](const SignTile& tile, size_t) {
    HWY_DYNAMIC_DISPATCH(expand_tile)(words, tile, x + tile.at);
  });
}

}  // namespace godwit
#endif  // HWY_ONCE
