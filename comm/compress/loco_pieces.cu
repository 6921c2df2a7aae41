#include <cmath>

#include "comm/compress/cuda/block_sums.h"
#include "comm/compress/cuda/pack_quads.h"
#include "comm/compress/cuda/table.h"
#include "comm/compress/loco_pieces.h"
#include "engine/cuda/philox.h"
#include "engine/cuda/reduce.h"

namespace godwit::loco {
namespace {

constexpr int32_t kWhole = 0x4B400000;  // bits of 1.5 · 2²³; adding that float rounds to an integer, as on the CPU
constexpr int kField = 20;              // bits per counter of a piece

using Count = unsigned long long;

__device__ bf16 clipped_size(float size, float clip) { return rounded_up(clip < size ? clip : size); }

// Half a warp per block; skips blocks of several pieces.
__global__ void sizes_kernel(const float* g, const Segment* blocks, int64_t count, bool mean, float clip, bf16* to) {
  for_half_warps(count, [&](int64_t b) {
    const int64_t begin = b < count ? blocks[b].begin : 0, all = b < count ? blocks[b].end - begin : 0;
    const int64_t n = all <= kSumPiece ? all : 0;
    const float* x = g + begin;
    const double sum = mean ? lane_sum(n, [=](int64_t i) { return static_cast<double>(std::abs(x[i])); }) : 0;
    const int32_t largest = mean ? 0 : lane_largest(n, [=](int64_t i) { return size_bits(x[i]); });
    if (n == 0 || threadIdx.x % kSumLanes != 0) return;
    to[b] = clipped_size(mean ? static_cast<float>(sum / static_cast<double>(n)) : std::bit_cast<float>(largest), clip);
  });
}

// One block of threads per piece: the sum of its magnitudes, or the largest.
__global__ void piece_sizes_kernel(const float* g, const Segment* blocks, const BlockPiece* pieces, bool mean,
                                   double* of_pieces) {
  __shared__ float sizes[kSumPiece];
  const BlockPiece piece = pieces[blockIdx.x];
  const float* x = g + blocks[piece.block].begin + piece.begin;
  int32_t most = 0;
  for (int64_t i = threadIdx.x; i < piece.n; i += kBlock) {
    sizes[i] = std::abs(x[i]);
    most = size_bits(x[i]) > most ? size_bits(x[i]) : most;
  }
  most = block_reduce(most, Larger{});  // also synchronizes: all sizes are written
  if (threadIdx.x >= 32) return;
  const double size = mean ? piece_sum(piece.n, [=](int64_t i) { return static_cast<double>(sizes[i]); })
                           : static_cast<double>(std::bit_cast<float>(most));
  if (threadIdx.x == 0) of_pieces[blockIdx.x] = size;
}

// One warp per long block.
__global__ void long_sizes_kernel(const Segment* blocks, const LongBlock* long_blocks, const double* of_pieces,
                                  bool mean, float clip, bf16* to) {
  const LongBlock block = long_blocks[blockIdx.x];
  const double* own = of_pieces + block.first;
  const auto n = static_cast<double>(blocks[block.block].end - blocks[block.block].begin);
  const double sum = piece_sum(block.pieces, [=](int64_t i) { return own[i]; });
  const int32_t most = lane_largest(block.pieces, [=](int64_t i) { return size_bits(static_cast<float>(own[i])); });
  if (threadIdx.x == 0)
    to[block.block] = clipped_size(mean ? static_cast<float>(sum / n) : std::bit_cast<float>(most), clip);
}

__global__ void agree_kernel(const bf16* sizes, int64_t ranks, int64_t blocks, int bits, float* scales) {
  for (int64_t b = grid_thread(); b < blocks; b += grid_threads()) {
    float most = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const float size = sizes[rank * blocks + b];
      most = most < size ? size : most;
    }
    if (most != 0) scales[b] = scale_of_size(most, bits);
  }
}

__device__ int32_t whole(float x) { return std::bit_cast<int32_t>(x + std::bit_cast<float>(kWhole)); }

__device__ int32_t clamped(int32_t x, int32_t low, int32_t high) {
  return x < kWhole + low ? kWhole + low : x > kWhole + high ? kWhole + high : x;
}

// Returns the code of one value in the lowest bits and updates its stored error e. `counts` has three counters.
template <int kBits>
__device__ uint32_t encode_value(float x, int8_t& e, const Scales& scales, const Settings& settings, uint32_t random,
                                 Count& counts) {
  const float size = std::abs(x), unit = 1 / (2 * scales.code);
  if (std::bit_cast<uint32_t>(size) >= 0x7F800000u) counts += Count{1} << (2 * kField);
  const float a = static_cast<float>(e) / scales.error_before;
  const float clipped = size < settings.clip ? size : settings.clip;
  const float h = (std::bit_cast<uint32_t>(x) >> 31 ? -clipped : clipped) + a;
  uint32_t field = h >= 0;
  float decoded = h >= 0 ? unit : -unit;
  if constexpr (kBits > 1) {
    constexpr int32_t kLow = -(1 << (kBits - 1)), kHigh = -1 - kLow;
    const int32_t exact = whole(h * scales.code), code = clamped(exact, kLow, kHigh);
    if (exact != code) counts += 1;
    if (code == kWhole) counts += Count{1} << kField;
    field = static_cast<uint32_t>(code) & ((1u << kBits) - 1);
    decoded = (std::bit_cast<float>(code) - std::bit_cast<float>(kWhole)) / scales.code;
  }
  float left = (settings.gain_old * a + settings.gain_new * (h - decoded)) * scales.error_after;
  if (settings.random) left = std::floor(left + static_cast<float>(random >> 8) * 0x1p-24f);
  e = settings.reset ? int8_t{0} : static_cast<int8_t>(static_cast<uint8_t>(clamped(whole(left), -128, 127)));
  return field;
}

// One block of threads per piece. totals: clamped codes; codes that are 0; non-finite values.
template <int kBits>
__global__ void encode_kernel(const float* g, int8_t* errors, const Piece* pieces, BlockScales by_block,
                              Settings settings, RngKey rng, int64_t element, uint32_t* words, Count* totals) {
  const Piece piece = pieces[blockIdx.x];
  const Scales scales = by_block.of(piece.block);
  const float* x = g + piece.begin;
  int8_t* e = errors + piece.begin;
  const bool random = settings.random && !settings.reset;
  const bool aligned = reinterpret_cast<uintptr_t>(x) % 16 == 0 && reinterpret_cast<uintptr_t>(e) % kQuad == 0;
  Count counts = 0;
  for_quads(piece.n, [&](int64_t i) {
    uint32_t bits = 0;
    if (i < piece.n) {
      const FourWords words_of = random ? four_words(rng, element + piece.begin + i) : FourWords{};
      if (aligned && i + kQuad <= piece.n) {
        const auto values = godwit::detail::load_pack<kQuad>(x + i, 0);
        auto kept = godwit::detail::load_pack<kQuad>(e + i, 0);
        for (int k = 0; k < kQuad; ++k)
          bits |= encode_value<kBits>(values.values[k], kept.values[k], scales, settings, words_of.words[k], counts)
                  << (kBits * k);
        godwit::detail::store_pack(e + i, kept);
      } else {
        for (int k = 0; k < kQuad && i + k < piece.n; ++k)
          bits |= encode_value<kBits>(x[i + k], e[i + k], scales, settings, words_of.words[k], counts) << (kBits * k);
      }
    }
    store_quad<kBits>(bits, i, piece.n, words + piece.code);
  });
  const Count all = block_reduce(counts, Plus{});
  if (threadIdx.x != 0 || all == 0) return;
  for (int field = 0; field < 3; ++field) atomicAdd(totals + field, all >> (kField * field) & ((1u << kField) - 1));
}

// Sums of the codes of four values, from value i of the piece on.
__device__ void sum_quad(const Messages& messages, const Piece& piece, int64_t i, int32_t (&sums)[kQuad]) {
  const int bits = messages.bits;
  const uint32_t* word = messages.words + piece.code + i * bits / 32;
  const int shift = static_cast<int>(i * bits % 32);
  for (int sender = 0; sender < messages.senders; ++sender) {
    const uint32_t fields = word[sender * messages.stride] >> shift;
    for (int k = 0; k < kQuad; ++k)
      sums[k] += bits == 1 ? 2 * static_cast<int32_t>(fields >> k & 1) - 1
                           : static_cast<int32_t>(fields << (32 - bits - bits * k)) >> (32 - bits);
  }
}

// Calls put(i, sum) for all values of the piece.
template <class Put>
__device__ void sum_piece(const Messages& messages, const Piece& piece, const Put& put) {
  for (int64_t i = kQuad * threadIdx.x; i < piece.n; i += kQuad * kBlock) {
    int32_t sums[kQuad] = {};
    sum_quad(messages, piece, i, sums);
    for (int k = 0; k < kQuad && i + k < piece.n; ++k) put(i + k, sums[k]);
  }
}

__global__ void mean_of_codes_kernel(Messages messages, const Piece* pieces, const float* scales, float* g) {
  const Piece piece = pieces[blockIdx.x];
  const float divisor = messages.divisor(scales[piece.block]);
  sum_piece(messages, piece, [&](int64_t i, int32_t sum) { g[piece.begin + i] = static_cast<float>(sum) / divisor; });
}

template <class T>
__global__ void sum_kernel(Messages messages, const Piece* pieces, T* sums) {
  const Piece piece = pieces[blockIdx.x];
  sum_piece(messages, piece, [&](int64_t i, int32_t sum) { sums[piece.sum + i] = static_cast<T>(sum); });
}

template <class T>
__global__ void mean_of_sums_kernel(Messages messages, const T* sums, const Piece* pieces, const float* scales,
                                    float* g) {
  const Piece piece = pieces[blockIdx.x];
  const float divisor = messages.divisor(scales[piece.block]);
  for (int64_t i = threadIdx.x; i < piece.n; i += kBlock)
    g[piece.begin + i] = static_cast<float>(sums[piece.sum + i]) / divisor;
}

// Calls f with a null pointer to the integer type of `width` bytes.
template <class F>
void with_width(int64_t width, const F& f) {
  if (width == 1) f(static_cast<int8_t*>(nullptr));
  else if (width == 2) f(static_cast<int16_t*>(nullptr));
  else f(static_cast<int32_t*>(nullptr));
}

int64_t count_of(const Table<Piece>& pieces) { return static_cast<int64_t>(pieces.all.size()); }

}  // namespace

void sizes(Cuda device, const float* g, const BlockTable<Segment>& blocks, bool mean, float clip, bf16* to) {
  const auto count = static_cast<int64_t>(blocks.all.size());
  const Segment* table = table_on(device, blocks);
  launch(device, "loco", sizes_kernel, blocks_for(device, kSumLanes * count), kBlock, g, table, count, mean, clip, to);
  const BlockPieces& pieces = pieces_of(blocks);
  if (pieces.of_long_blocks == 0) return;
  const Scratch<double> of_pieces(device, pieces.of_long_blocks);
  launch(device, "loco", piece_sizes_kernel, pieces.of_long_blocks, kBlock, g, table, table_on(device, pieces.all),
         mean, of_pieces.data());
  launch(device, "loco", long_sizes_kernel, std::ssize(pieces.long_blocks.all), 32, table,
         table_on(device, pieces.long_blocks), of_pieces.data(), mean, clip, to);
}

void agree(Cuda device, const bf16* sizes, int64_t ranks, int64_t blocks, int bits, float* scales) {
  launch(device, "loco", agree_kernel, blocks_for(device, blocks), kBlock, sizes, ranks, blocks, bits, scales);
}

Tensor encode(Cuda device, const float* g, int8_t* e, const Table<Piece>& pieces, const BlockScales& scales,
              const Settings& settings, const RngKey& rng, int64_t element, uint32_t* words) {
  static_assert(kPiece < 1 << kField && sizeof(Count) == sizeof(int64_t));
  const Tensor totals = Tensor::zeros({3}, DType::i64);
  const auto run = [&](auto kernel) {
    launch(device, "loco", kernel, count_of(pieces), kBlock, g, e, table_on(device, pieces), scales, settings, rng,
           element, words, reinterpret_cast<Count*>(totals.cuda_data<int64_t>()));
  };
  if (settings.bits == 1) run(encode_kernel<1>);
  else if (settings.bits == 4) run(encode_kernel<4>);
  else run(encode_kernel<8>);
  return totals;
}

void mean_of_codes(Cuda device, const Messages& messages, const Table<Piece>& pieces, const float* scales, float* g) {
  launch(device, "loco", mean_of_codes_kernel, count_of(pieces), kBlock, messages, table_on(device, pieces), scales, g);
}

void sum_codes(Cuda device, const Messages& messages, const Table<Piece>& pieces, int64_t width, uint8_t* sums) {
  with_width(width, [&]<class T>(T*) {
    launch(device, "loco", sum_kernel<T>, count_of(pieces), kBlock, messages, table_on(device, pieces),
           reinterpret_cast<T*>(sums));
  });
}

void mean_of_sums(Cuda device, const Messages& messages, const uint8_t* sums, int64_t width, const Table<Piece>& pieces,
                  const float* scales, float* g) {
  with_width(width, [&]<class T>(T*) {
    launch(device, "loco", mean_of_sums_kernel<T>, count_of(pieces), kBlock, messages, reinterpret_cast<const T*>(sums),
           table_on(device, pieces), scales, g);
  });
}

}  // namespace godwit::loco
