#include "comm/compress/block_codes.h"

#include <bit>
#include <cmath>

#include "comm/compress/cuda/block_coding.h"
#include "comm/compress/cuda/pack_quads.h"
#include "comm/compress/levels.h"
#include "engine/cuda/philox.h"
#include "engine/inline.h"

namespace godwit {
namespace {

using namespace coding;
using Scale = LevelFormat::Scale;

__device__ bool is_finite(float x) { return std::abs(x) <= std::numeric_limits<float>::max(); }

__device__ bool needs_squares(const LevelFormat& format) {
  return format.scale == Scale::norm || (format.scale == Scale::clipped && format.clip_sigma > 0);
}

// Measurements of one piece.
struct Measure {
  int32_t most;    // bits of the largest magnitude
  double squares;  // sum of squares, if needed
};

// All threads get the result. z: room for the piece's values.
__device__ Measure measure(const Job& job, const BlockPiece& piece, bool squares, float* z) {
  __shared__ double sum;
  const int32_t most = load_values(job, piece, z);
  if (!squares) return {most, 0};
  if (threadIdx.x < 32) {
    const double own =
        piece_sum(piece.n, [&](int64_t i) { return static_cast<double>(z[i]) * static_cast<double>(z[i]); });
    if (threadIdx.x == 0) sum = own;
  }
  __syncthreads();
  return {most, sum};
}

// Scale of a block of n values; thread 0 reports a norm that overflows float32.
__device__ float scale_of(const Measure& block, int64_t n, const LevelFormat& format, uint32_t* fault) {
  const float largest = std::bit_cast<float>(block.most);
  if (!needs_squares(format)) return largest;
  if (format.scale == Scale::norm) {
    const auto norm = static_cast<float>(std::sqrt(block.squares));
    if (threadIdx.x == 0 && is_finite(largest) && !is_finite(norm)) atomicOr(fault, uint32_t{kNormTooLarge});
    return norm;
  }
  const auto bound = static_cast<float>(format.clip_sigma * std::sqrt(block.squares / static_cast<double>(n)));
  return bound < largest ? bound : largest;
}

__global__ void block_measure_kernel(Job job, LevelFormat format, Measure* of_pieces) {
  __shared__ float z[kSumPiece];
  const Measure own = measure(job, job.pieces[blockIdx.x], needs_squares(format), z);
  if (threadIdx.x == 0) of_pieces[blockIdx.x] = own;
}

// One warp per long block.
__global__ void block_scale_kernel(Job job, LevelFormat format, const LongBlock* blocks, const Measure* of_pieces,
                                   float* scales) {
  const LongBlock block = blocks[blockIdx.x];
  const Measure* own = of_pieces + block.first;
  const Measure all{lane_largest(block.pieces, [=](int64_t i) { return own[i].most; }),
                    piece_sum(block.pieces, [=](int64_t i) { return own[i].squares; })};
  const float scale = scale_of(all, job.blocks[block.block].n, format, job.fault);
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

// scales: one per long block.
template <int kBits>
__global__ void encode_levels_kernel(Job job, LevelFormat format, const float* scales) {
  __shared__ float z[kSumPiece];
  const BlockPiece piece = job.pieces[blockIdx.x];
  const Source source = job.source(piece);
  uint32_t* code = job.code(piece);
  float scale;
  if (piece.long_block < 0) {
    scale = scale_of(measure(job, piece, needs_squares(format), z), piece.n, format, job.fault);
  } else {
    load_values(job, piece, z);
    scale = scales[piece.long_block];
  }
  const float most = static_cast<float>(format.levels);
  float factor = most / scale;
  if (!is_finite(factor)) factor = scale = 0;
  const float step = scale / most;
  if (threadIdx.x == 0 && piece.begin == 0) code[0] = std::bit_cast<uint32_t>(scale);
  const int64_t element = job.element + job.blocks[piece.block].begin + piece.begin;
  for_quads(piece.n, [&](int64_t i) {
    uint32_t fields = 0;
    if (i < piece.n) {
      const FourWords random = format.random ? four_words(job.rng, element + i) : FourWords{};
      for (int k = 0; k < kQuad && i + k < piece.n; ++k) {
        float v = z[i + k] * factor;
        if (format.random) v = static_cast<float>(random.words[k] >> 8) * 0x1p-24f + v;
        v = v > -most ? v < most ? v : most : -most;
        if (format.random) v = std::floor(v);
        const auto level = static_cast<int32_t>(std::bit_cast<uint32_t>(v + 12582912.0f) - 0x4B400000u);
        fields |= (static_cast<uint32_t>(level) & ((1u << kBits) - 1)) << (kBits * k);
        source.keep(i + k, z[i + k], static_cast<float>(level) * step);
      }
    }
    store_quad<kBits>(fields, i, piece.n, code + 1 + piece.begin * kBits / 32);
  });
}

struct Levels {
  int levels, bits;
  struct Reader {
    const uint32_t* code;
    float step;
    int bits;
    __device__ float operator()(int64_t i) const {
      const int64_t at = i * bits;
      const auto field = code[1 + at / 32] >> (at % 32);
      return static_cast<float>(static_cast<int32_t>(field << (32 - bits)) >> (32 - bits)) * step;
    }
  };
  __device__ Reader of(const uint32_t* code) const {
    return {code, std::bit_cast<float>(code[0]) / static_cast<float>(levels), bits};
  }
};

template <class Format>
__global__ void block_mean_kernel(Means means, Format format) {
  const BlockPiece piece = means.pieces[blockIdx.x];
  const CodedBlock block = means.blocks[piece.block];
  const uint32_t* code = means.words + block.at;
  for (int64_t i = piece.begin + threadIdx.x; i < piece.begin + piece.n; i += blockDim.x) {
    float sum = format.of(code)(i);
    for (int sender = 1; sender < means.senders; ++sender) sum = sum + format.of(code + sender * means.stride)(i);
    means.put(block.begin + i, sum);
  }
}

// Values >= 0, and values < 0.
struct BySign {
  double sums[2];
  int64_t counts[2];
};
struct TwoValues {
  float of[2];
};

__device__ float mean_of(double sum, int64_t count) {
  return count > 0 ? static_cast<float>(sum / static_cast<double>(count)) : 0.0f;
}

// All threads get the result. z: room for the piece's values.
__device__ BySign measure_signs(const Job& job, const BlockPiece& piece, float* z) {
  __shared__ double sums[2];
  load_values(job, piece, z);
  int32_t plus = 0;
  for (int64_t i = threadIdx.x; i < piece.n; i += blockDim.x) plus += z[i] >= 0;
  plus = block_reduce(plus, Plus{});
  if (threadIdx.x < 32) {
    const bool positive = threadIdx.x < kSumLanes;  // one half warp per sum
    const double own =
        piece_sum(piece.n, [&](int64_t i) { return (z[i] > 0) == positive ? static_cast<double>(z[i]) : 0.0; });
    if (threadIdx.x % kSumLanes == 0) sums[threadIdx.x / kSumLanes] = own;
  }
  __syncthreads();
  return {{sums[0], sums[1]}, {plus, piece.n - plus}};
}

__global__ void measure_signs_kernel(Job job, BySign* of_pieces) {
  __shared__ float z[kSumPiece];
  const BySign own = measure_signs(job, job.pieces[blockIdx.x], z);
  if (threadIdx.x == 0) of_pieces[blockIdx.x] = own;
}

// One warp per long block, half a warp per sum.
__global__ void two_values_kernel(const LongBlock* blocks, const BySign* of_pieces, TwoValues* values) {
  const LongBlock block = blocks[blockIdx.x];
  const BySign* own = of_pieces + block.first;
  const int sign = static_cast<int>(threadIdx.x) / kSumLanes;
  const double sum = piece_sum(block.pieces, [=](int64_t i) { return own[i].sums[sign]; });
  const double count = piece_sum(block.pieces, [=](int64_t i) { return static_cast<double>(own[i].counts[sign]); });
  if (threadIdx.x % kSumLanes == 0) values[blockIdx.x].of[sign] = mean_of(sum, static_cast<int64_t>(count));
}

// of_long_blocks: decoded values of a 1 and a 0 in each long block.
__global__ void encode_one_bit_kernel(Job job, const TwoValues* of_long_blocks) {
  __shared__ float z[kSumPiece];
  const BlockPiece piece = job.pieces[blockIdx.x];
  const Source source = job.source(piece);
  uint32_t* code = job.code(piece);
  TwoValues values;
  if (piece.long_block < 0) {
    const BySign all = measure_signs(job, piece, z);
    for (int sign = 0; sign < 2; ++sign) values.of[sign] = mean_of(all.sums[sign], all.counts[sign]);
  } else {
    load_values(job, piece, z);
    values = of_long_blocks[piece.long_block];
  }
  if (threadIdx.x < 2 && piece.begin == 0) code[threadIdx.x] = std::bit_cast<uint32_t>(values.of[threadIdx.x]);
  for_quads(piece.n, [&](int64_t i) {
    uint32_t fields = 0;
    for (int k = 0; k < kQuad && i + k < piece.n; ++k) {
      const bool one = z[i + k] >= 0;
      fields |= static_cast<uint32_t>(one) << k;
      source.keep(i + k, z[i + k], values.of[one ? 0 : 1]);
    }
    store_quad<1>(fields, i, piece.n, code + 2 + piece.begin / 32);
  });
}

struct OneBits {
  struct Reader {
    const uint32_t* code;
    __device__ float operator()(int64_t i) const {
      return std::bit_cast<float>(code[code[2 + i / 32] >> (i % 32) & 1 ? 0 : 1]);
    }
  };
  __device__ Reader of(const uint32_t* code) const { return {code}; }
};

void encode(Cuda device, const Job& job, const BlockPieces& pieces, const LevelFormat& format) {
  const int64_t blocks = std::ssize(pieces.long_blocks.all);
  const Scratch<Measure> of_pieces(device, pieces.of_long_blocks);
  const Scratch<float> scales(device, blocks);
  if (blocks > 0) {
    launch(device, format.name, block_measure_kernel, pieces.of_long_blocks, kBlock, job, format, of_pieces.data());
    launch(device, format.name, block_scale_kernel, blocks, 32, job, format, table_on(device, pieces.long_blocks),
           of_pieces.data(), scales.data());
  }
  const auto run = [&](auto kernel) {
    launch(device, format.name, kernel, std::ssize(pieces.all.all), kBlock, job, format, scales.data());
  };
  if (level_bits(format.levels) == 2) run(encode_levels_kernel<2>);
  else if (level_bits(format.levels) == 4) run(encode_levels_kernel<4>);
  else run(encode_levels_kernel<8>);
}

void mean(Cuda device, const Means& means, int64_t pieces, const LevelFormat& format) {
  launch(device, format.name, block_mean_kernel<Levels>, pieces, kBlock, means,
         Levels{format.levels, level_bits(format.levels)});
}

void encode(Cuda device, const Job& job, const BlockPieces& pieces, const OneBitFormat&) {
  const int64_t blocks = std::ssize(pieces.long_blocks.all);
  const Scratch<BySign> of_pieces(device, pieces.of_long_blocks);
  const Scratch<TwoValues> values(device, blocks);
  if (blocks > 0) {
    launch(device, "one_bit", measure_signs_kernel, pieces.of_long_blocks, kBlock, job, of_pieces.data());
    launch(device, "one_bit", two_values_kernel, blocks, 32, table_on(device, pieces.long_blocks), of_pieces.data(),
           values.data());
  }
  launch(device, "one_bit", encode_one_bit_kernel, std::ssize(pieces.all.all), kBlock, job, values.data());
}

void mean(Cuda device, const Means& means, int64_t pieces, const OneBitFormat&) {
  launch(device, "one_bit", block_mean_kernel<OneBits>, pieces, kBlock, means, OneBits{});
}

void encode(Cuda device, const Job& job, const BlockPieces& pieces, const LargestFormat& format) {
  encode_largest(device, job, pieces, format);
}

void mean(Cuda device, const Means& means, int64_t pieces, const LargestFormat& format) {
  mean_of_largest(device, means, pieces, format);
}

[[noreturn]] void refuse() {
  fail(
      "block codes: this compressor has no GPU kernels, since its format() names none; train on the CPU, or use an "
      "exchange with kernels, such as qsgd");
}

void encode(Cuda, const Job&, const BlockPieces&, const std::monostate&) { refuse(); }
void mean(Cuda, const Means&, int64_t, const std::monostate&) { refuse(); }

}  // namespace

Tensor encode_blocks(Cuda device, const Compressor& compressor, const float* x, Feedback feedback, float* kept,
                     const BlockTable<CodedBlock>& blocks, const RngKey& rng, int64_t element, uint32_t* words) {
  const BlockPieces& pieces = pieces_of(blocks);
  const Tensor faults = Tensor::zeros({1}, DType::u32);
  const Job job{x,   feedback, kept,  table_on(device, blocks),    table_on(device, pieces.all),
                rng, element,  words, faults.cuda_data<uint32_t>()};
  const CodeFormat format = compressor.format();
  std::visit([&](const auto& f) { encode(device, job, pieces, f); }, format);
  return faults;
}

void mean_of_blocks(Cuda device, const Compressor& compressor, const uint32_t* words, int64_t stride, int senders,
                    const BlockTable<CodedBlock>& blocks, bool moves, float* mean_at) {
  const BlockPieces& pieces = pieces_of(blocks);
  const Means means{
      words, stride, senders, table_on(device, blocks), table_on(device, pieces.all), moves, mean_at};
  const CodeFormat format = compressor.format();
  std::visit([&](const auto& f) { mean(device, means, std::ssize(pieces.all.all), f); }, format);
}

}  // namespace godwit
