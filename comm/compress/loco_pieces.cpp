#include "comm/compress/loco_pieces.h"

#include <algorithm>
#include <atomic>

#include "comm/compress/wire/block_math.h"
#include "engine/parallel.h"

namespace godwit::loco {
namespace {

template <class F>
void for_pieces(const Table<Piece>& pieces, const F& f) {
  int64_t values = 0;
  for (const Piece& piece : pieces.all) values += piece.n;
  const int64_t count = std::ssize(pieces.all);
  const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 14) * count / std::max<int64_t>(values, 1));
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(pieces.all[static_cast<size_t>(i)]);
  });
}

void sum(const Messages& messages, const Piece& piece, int32_t* sums) {
  sum_codes(messages.words + piece.code, messages.stride, messages.senders, messages.bits, piece.n, sums);
}

void divide(const int32_t* sums, int64_t n, float by, float* mean) {
  for (int64_t i = 0; i < n; ++i) mean[i] = static_cast<float>(sums[i]) / by;
}

}  // namespace

void sizes(Cpu, const float* g, const BlockTable<Segment>& blocks, bool mean, float clip, bf16* to) {
  parallel_for(std::ssize(blocks.all), 16, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const Segment& block = blocks.all[static_cast<size_t>(b)];
      const float* x = g + block.begin;
      const int64_t n = block.numel();
      const float size = mean ? static_cast<float>(block::sum_of_magnitudes(x, n) / static_cast<double>(n))
                              : block::largest_magnitude(x, n);
      to[b] = rounded_up(std::min(size, clip));
    }
  });
}

void agree(Cpu, const bf16* sizes, int64_t ranks, int64_t blocks, int bits, float* scales) {
  for (int64_t b = 0; b < blocks; ++b) {
    float most = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) most = std::max(most, float{sizes[rank * blocks + b]});
    if (most != 0) scales[b] = scale_of_size(most, bits);
  }
}

Tensor encode(Cpu, const float* g, int8_t* e, const Table<Piece>& pieces, const BlockScales& scales,
              const Settings& settings, const RngKey& rng, int64_t element, uint32_t* words) {
  std::atomic<int64_t> saturated{0}, zero{0};
  std::atomic<bool> finite{true};
  for_pieces(pieces, [&](const Piece& piece) {
    const Counts counts = encode(g + piece.begin, e + piece.begin, piece.n, scales.of(piece.block), settings, rng,
                                 element + piece.begin, words + piece.code);
    saturated += counts.saturated;
    zero += counts.zero;
    if (!counts.finite) finite = false;
  });
  const Tensor totals({3}, DType::i64, kCpu);
  totals.data<int64_t>()[0] = saturated, totals.data<int64_t>()[1] = zero;
  totals.data<int64_t>()[2] = finite ? 0 : 1;
  return totals;
}

Counts counts_of(const Tensor& totals) {
  const std::vector<int64_t> counts = totals.to_vector<int64_t>();
  return {counts[0], counts[1], counts[2] == 0};
}

void mean_of_codes(Cpu, const Messages& messages, const Table<Piece>& pieces, const float* scales, float* g) {
  for_pieces(pieces, [&](const Piece& piece) {
    int32_t sums[kPiece];
    sum(messages, piece, sums);
    divide(sums, piece.n, messages.divisor(scales[piece.block]), g + piece.begin);
  });
}

void sum_codes(Cpu, const Messages& messages, const Table<Piece>& pieces, int64_t width, uint8_t* sums) {
  for_pieces(pieces, [&](const Piece& piece) {
    int32_t values[kPiece];
    sum(messages, piece, values);
    if (width == 1) std::copy_n(values, piece.n, reinterpret_cast<int8_t*>(sums) + piece.sum);
    else if (width == 2) std::copy_n(values, piece.n, reinterpret_cast<int16_t*>(sums) + piece.sum);
    else std::copy_n(values, piece.n, reinterpret_cast<int32_t*>(sums) + piece.sum);
  });
}

void mean_of_sums(Cpu, const Messages& messages, const uint8_t* sums, int64_t width, const Table<Piece>& pieces,
                  const float* scales, float* g) {
  for_pieces(pieces, [&](const Piece& piece) {
    int32_t values[kPiece];
    if (width == 1) std::copy_n(reinterpret_cast<const int8_t*>(sums) + piece.sum, piece.n, values);
    else if (width == 2) std::copy_n(reinterpret_cast<const int16_t*>(sums) + piece.sum, piece.n, values);
    else std::copy_n(reinterpret_cast<const int32_t*>(sums) + piece.sum, piece.n, values);
    divide(values, piece.n, messages.divisor(scales[piece.block]), g + piece.begin);
  });
}

}  // namespace godwit::loco
