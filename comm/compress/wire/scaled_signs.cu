#include "comm/compress/wire/scaled_signs.h"

#include <bit>
#include <cmath>
#include <limits>

#include "engine/cuda/reduce.h"

namespace godwit {
namespace {

constexpr int kParts = 16;  // interleaved sums per tile

__device__ bool bit_at(const uint32_t* words, int64_t bit) { return words[bit / 32] >> (bit % 32) & 1; }

// The values to compress: a sender's own, or the mean of several senders' decoded values.
struct Own {
  const float* x;
  __device__ float operator()(const SignTile& tile, int64_t i) const { return x[tile.at + i]; }
};

struct MeanOfSigns {
  const uint32_t* received;
  int senders;
  int64_t stride;
  __device__ float operator()(const SignTile& tile, int64_t i) const {
    float sum = 0;
    for (int s = 0; s < senders; ++s) {
      const uint32_t* message = received + s * stride;
      const auto scale = std::bit_cast<float>(message[tile.slot]);
      sum = sum + (bit_at(message, tile.bit + i) ? scale : -scale);
    }
    return sum / static_cast<float>(senders);
  }
};

// Σ|y| or Σy² of the tile's values in kParts parts, added in the CPU's order; returned to all threads of the block.
__device__ float sum_tile(const float* y, int count, bool squares) {
  __shared__ float parts[kParts];
  if (threadIdx.x < kParts) {
    float sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kParts)
      sum = sum + (squares ? y[i] * y[i] : std::abs(y[i]));
    parts[threadIdx.x] = sum;
  }
  for (unsigned half = kParts / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) parts[threadIdx.x] = parts[threadIdx.x] + parts[threadIdx.x + half];
  }
  __syncthreads();
  return parts[0];
}

__device__ float scale_of(double sum, int64_t values, SignScale scale) {
  const double mean = sum / static_cast<double>(values);
  return static_cast<float>(scale == SignScale::l2_rms ? std::sqrt(mean) : mean);
}

// Writes the signs of y to the message, 32 values per warp, and the rest to e. Other tiles may share the first and last
// words.
__device__ void quantize_tile(const float* y, float* e, const SignTile& tile, float scale, uint32_t* words) {
  for (int i = static_cast<int>(threadIdx.x); i - static_cast<int>(threadIdx.x % 32) < tile.count; i += kBlock) {
    const bool plus = i < tile.count && y[i] >= 0;
    const uint32_t bits = __ballot_sync(0xFFFFFFFFu, plus);
    if (i < tile.count) e[tile.at + i] = y[i] - (plus ? scale : -scale);
    if (threadIdx.x % 32 != 0 || bits == 0) continue;
    const int64_t bit = tile.bit + i;
    const int shift = static_cast<int>(bit % 32);
    atomicOr(words + bit / 32, bits << shift);
    if (shift > 0 && bits >> (32 - shift) != 0) atomicOr(words + bit / 32 + 1, bits >> (32 - shift));
  }
}

// Writes the scale to its slot, if this is the slot's first tile. `fault` keeps the smallest index with a non-finite
// scale, as kFarAway − index.
__device__ void put_scale(const SignTile* tiles, int64_t tile, float scale, uint32_t* words,
                          unsigned long long* fault) {
  if (threadIdx.x != 0) return;
  const int64_t slot = tiles[tile].slot;
  if (tile == 0 || tiles[tile - 1].slot != slot) words[slot] = std::bit_cast<uint32_t>(scale);
  if (!(std::abs(scale) <= std::numeric_limits<float>::max()))
    atomicMax(fault, static_cast<unsigned long long>(kFarAway - tiles[tile].at));
}

// One block of threads per tile. If every block of values is one tile (`whole`), compresses it; otherwise writes y to e
// and its sum to sums.
template <class X>
__global__ void signs_compress_kernel(X x, float* e, const SignTile* tiles, SignScale scale, bool whole,
                                      uint32_t* words, float* sums, unsigned long long* fault) {
  __shared__ float y[SignTile::kValues];
  const SignTile tile = tiles[blockIdx.x];
  for (int i = static_cast<int>(threadIdx.x); i < tile.count; i += kBlock) {
    y[i] = x(tile, i) + e[tile.at + i];
    if (!whole) e[tile.at + i] = y[i];
  }
  __syncthreads();
  const float sum = sum_tile(y, tile.count, scale == SignScale::l2_rms);
  if (!whole) {
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    return;
  }
  const float s = scale_of(static_cast<double>(sum), tile.count, scale);
  put_scale(tiles, blockIdx.x, s, words, fault);
  quantize_tile(y, e, tile, s, words);
}

// Index of the first tile of this or a later block of values.
__device__ int64_t first_tile(const SignTile* tiles, int64_t count, int64_t block) {
  int64_t first = 0;
  while (count > 0) {
    const int64_t half = count / 2;
    if (tiles[first + half].block < block) first += half + 1, count -= half + 1;
    else count = half;
  }
  return first;
}

// One block of threads per block of values: loads the sums of its tiles together, adds them in order, and computes the
// scale.
__global__ void signs_scale_kernel(const SignTile* tiles, int64_t count, SignScale scale, const float* sums,
                                   float* scales) {
  __shared__ float loaded[kBlock];
  const int64_t block = blockIdx.x, end = first_tile(tiles, count, block + 1);
  double sum = 0;
  int64_t values = 0;
  for (int64_t first = first_tile(tiles, count, block); first < end; first += kBlock) {
    const auto here = static_cast<unsigned>(end - first < kBlock ? end - first : kBlock);
    __syncthreads();  // thread 0 has added the previous sums
    if (threadIdx.x < here) {
      loaded[threadIdx.x] = sums[first + threadIdx.x];
      values += tiles[first + threadIdx.x].count;
    }
    __syncthreads();
    if (threadIdx.x != 0) continue;
#pragma unroll 8
    for (unsigned i = 0; i < here; ++i) sum += static_cast<double>(loaded[i]);
  }
  values = block_reduce(values, Plus());
  if (threadIdx.x == 0) scales[block] = scale_of(sum, values, scale);
}

__global__ void signs_quantize_kernel(float* e, const SignTile* tiles, const float* scales, uint32_t* words,
                                      unsigned long long* fault) {
  const SignTile tile = tiles[blockIdx.x];
  const float scale = scales[tile.block];
  put_scale(tiles, blockIdx.x, scale, words, fault);
  quantize_tile(e + tile.at, e, tile, scale, words);
}

__global__ void signs_expand_kernel(const uint32_t* words, const SignTile* tiles, float* x) {
  const SignTile tile = tiles[blockIdx.x];
  const auto scale = std::bit_cast<float>(words[tile.slot]);
  for (int i = static_cast<int>(threadIdx.x); i < tile.count; i += kBlock)
    x[tile.at + i] = bit_at(words, tile.bit + i) ? scale : -scale;
}

// GPU copy of the tiles, made on first use.
const SignTile* tiles_on(Cuda, const SignTiles& tiles) {
  if (!tiles.copy.defined()) {
    for (size_t i = 1; i < tiles.tiles.size(); ++i)
      check(tiles.tiles[i - 1].block <= tiles.tiles[i].block, "scaled signs: tile ", i, " is of block ",
            tiles.tiles[i].block, ", tile ", i - 1, " of block ", tiles.tiles[i - 1].block,
            "; add blocks in ascending order");
    const auto* bytes = reinterpret_cast<const uint8_t*>(tiles.tiles.data());
    const size_t size = tiles.tiles.size() * sizeof(SignTile);
    tiles.copy = Tensor::of(std::span<const uint8_t>(bytes, size), {static_cast<int64_t>(size)});
  }
  return reinterpret_cast<const SignTile*>(tiles.copy.cuda_data<uint8_t>());
}

template <class X>
Tensor compress(Cuda device, const X& x, float* e, const SignTiles& tiles, SignScale scale, uint32_t* words) {
  const auto count = static_cast<int64_t>(tiles.tiles.size()), blocks = static_cast<int64_t>(tiles.sizes.size());
  const Tensor bad = Tensor::zeros({1}, DType::i64);
  if (count == 0) return bad;
  const SignTile* on = tiles_on(device, tiles);
  const bool whole = count == blocks;
  const Tensor sums({whole ? 0 : count}), scales({whole ? 0 : blocks});
  auto* fault = reinterpret_cast<unsigned long long*>(bad.cuda_data<int64_t>());
  launch(device, "scaled signs", signs_compress_kernel<X>, count, kBlock, x, e, on, scale, whole, words,
         sums.cuda_data<float>(), fault);
  if (!whole) {
    launch(device, "scaled signs", signs_scale_kernel, blocks, kBlock, on, count, scale, sums.cuda_data<float>(),
           scales.cuda_data<float>());
    launch(device, "scaled signs", signs_quantize_kernel, count, kBlock, e, on, scales.cuda_data<float>(), words,
           fault);
  }
  return bad;
}

}  // namespace

Tensor compress_signs(Cuda device, const float* x, float* e, const SignTiles& tiles, SignScale scale, uint32_t* words) {
  return compress(device, Own{x}, e, tiles, scale, words);
}

Tensor compress_mean_of_signs(Cuda device, const uint32_t* received, int senders, int64_t stride, float* e,
                              const SignTiles& tiles, SignScale scale, uint32_t* words) {
  return compress(device, MeanOfSigns{received, senders, stride}, e, tiles, scale, words);
}

void expand_signs(Cuda device, const uint32_t* words, const SignTiles& tiles, float* x) {
  if (tiles.tiles.empty()) return;
  launch(device, "scaled signs", signs_expand_kernel, static_cast<int64_t>(tiles.tiles.size()), kBlock, words,
         tiles_on(device, tiles), x);
}

}  // namespace godwit
