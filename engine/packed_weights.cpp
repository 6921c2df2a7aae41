#include "engine/packed_weights.h"

#include <algorithm>
#include <utility>

#include "engine/check.h"
#include "engine/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/packed_weights.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// to [rows, 64] = the transpose of the first `rows` columns of from [64, stride].
HWY_INLINE void transpose(const float* from, int64_t stride, int64_t rows, float* to) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t c = 0; c < kBlockColumns; ++c)
    for (int64_t r = 0; r < rows; ++r) to[r * kBlockColumns + c] = from[c * stride + r];
#else
  const hn::FixedTag<float, 4> d;
  for (int64_t c = 0; c < kBlockColumns; c += 4, from += 4 * stride)
    for (int64_t r = 0; r < rows; r += 4) {
      const auto r0 = hn::LoadU(d, from + r), r1 = hn::LoadU(d, from + stride + r);
      const auto r2 = hn::LoadU(d, from + 2 * stride + r), r3 = hn::LoadU(d, from + 3 * stride + r);
      const auto even_low = hn::InterleaveLower(d, r0, r2), odd_low = hn::InterleaveLower(d, r1, r3);
      const auto even_high = hn::InterleaveUpper(d, r0, r2), odd_high = hn::InterleaveUpper(d, r1, r3);
      float* at = to + r * kBlockColumns + c;
      hn::StoreU(hn::InterleaveLower(d, even_low, odd_low), d, at);
      hn::StoreU(hn::InterleaveUpper(d, even_low, odd_low), d, at + kBlockColumns);
      hn::StoreU(hn::InterleaveLower(d, even_high, odd_high), d, at + 2 * kBlockColumns);
      hn::StoreU(hn::InterleaveUpper(d, even_high, odd_high), d, at + 3 * kBlockColumns);
    }
#endif
}

// x rounded to bfloat16 (nearest even), in the upper 16 bits of each lane; NaN stays NaN.
template <class D, class V>
HWY_INLINE V rounded(D bits, V x) {
  const hn::RebindToFloat<D> d;
  const auto nan = hn::BitCast(bits, hn::VecFromMask(d, hn::IsNaN(hn::BitCast(d, x))));
  const auto odd = hn::And(hn::ShiftRight<16>(x), hn::Set(bits, 1u));
  const auto up = hn::Add(x, hn::Add(odd, hn::Set(bits, 0x7FFFu)));
  return hn::IfVecThenElse(nan, hn::Or(x, hn::Set(bits, 0x400000u)), up);
}

// to [16][64][2] = 32 rows of 64 values with row stride `stride`, rounded to bfloat16.
HWY_INLINE void round_pairs(const float* from, int64_t stride, uint32_t* to) {
  const hn::CappedTag<uint32_t, 16> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto* in = reinterpret_cast<const uint32_t*>(from);
  for (int64_t pair = 0; pair < 16; ++pair, in += 2 * stride, to += kBlockColumns)
    for (int64_t c = 0; c < kBlockColumns; c += lanes) {
      const auto low = rounded(d, hn::LoadU(d, in + c)), high = rounded(d, hn::LoadU(d, in + stride + c));
      hn::StoreU(hn::Or(hn::ShiftRight<16>(low), hn::And(high, hn::Set(d, 0xFFFF0000u))), d, to + c);
    }
}

// Packs a block of w that begins at `block`.
void pack_block(const float* block, bool transposed, int64_t stride, bool halves, void* to) {
  const int64_t rows = halves ? 32 : 16;
  HWY_ALIGN float turned[32 * kBlockColumns];
  if (transposed) {
    transpose(block, stride, rows, halves ? turned : static_cast<float*>(to));
    block = turned, stride = kBlockColumns;
  }
  if (halves) return round_pairs(block, stride, static_cast<uint32_t*>(to));
  for (int64_t i = 0; i < rows && !transposed; ++i)
    std::copy_n(block + i * stride, kBlockColumns, static_cast<float*>(to) + i * kBlockColumns);
}

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit {

HWY_EXPORT(pack_block);

void pack_weights(Cpu, const std::vector<Tensor>& w, bool transposed, int64_t rows, int64_t columns, DType type,
                  void* to) {
  const bool halves = type == DType::bf16;
  const int64_t height = block_rows(type), down = (rows + height - 1) / height;
  const int64_t across = (columns + kBlockColumns - 1) / kBlockColumns;
  const int64_t stride = transposed ? rows : columns, bytes = 16 * kBlockColumns * 4;
  std::vector<std::pair<int64_t, const float*>> parts;  // the number of rows before each part, and its first row
  int64_t numel = 0;
  for (const Tensor& part : w) {
    check(numel % (kBlockColumns * stride) == 0 && part.dtype() == DType::f32, "pack_weights: takes float32 parts of ",
          "a multiple of ", kBlockColumns, " rows, not ", part.dtype(), " ", part.shape(), " after ", numel, " values");
    parts.emplace_back(numel / stride, part.data<float>());
    numel += part.numel();
  }
  check(numel == rows * columns && (halves || type == DType::f32), "pack_weights: takes float32 [", rows, ", ", columns,
        "] to float32 or bfloat16, not ", numel, " values to ", type);
  // Rows of a block in memory, and their length.
  const int64_t lines = transposed ? kBlockColumns : height, length = transposed ? height : kBlockColumns;
  const auto block = [&](int64_t i, int64_t j) {
    const int64_t line = transposed ? j * lines : i * lines, at = transposed ? i * length : j * length;
    const int64_t there = std::min(lines, (transposed ? columns : rows) - line), wide = std::min(length, stride - at);
    size_t part = parts.size() - 1;
    while (line < parts[part].first) --part;
    const float* source = parts[part].second + (line - parts[part].first) * stride + at;
    HWY_ALIGN float padded[32 * kBlockColumns];
    const bool ragged = there < lines || wide < length;
    if (ragged) {
      std::fill(std::begin(padded), std::end(padded), 0.0F);
      for (int64_t k = 0; k < there; ++k) std::copy_n(source + k * stride, wide, padded + k * length);
    }
    HWY_DYNAMIC_DISPATCH(pack_block)
    (ragged ? padded : source, transposed, ragged ? length : stride, halves,
     static_cast<std::byte*>(to) + (j * down + i) * bytes);
  };
  // Visits the blocks in the order of the rows in memory.
  parallel_for(transposed ? across : down, std::max<int64_t>(1, (1 << 15) / (stride * 16)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i)
                   for (int64_t j = 0; j < (transposed ? down : across); ++j) transposed ? block(j, i) : block(i, j);
               });
}

}  // namespace godwit
#endif
