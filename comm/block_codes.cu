#include <bit>
#include <cmath>
#include <limits>

#include "comm/block_codes.h"
#include "comm/cuda/block_sums.h"
#include "comm/cuda/pack_quads.h"
#include "comm/cuda/table.h"
#include "comm/wire/levels.h"
#include "comm/wire/select.h"
#include "engine/cuda/philox.h"
#include "engine/cuda/reduce.h"
#include "engine/inline.h"

namespace godwit {
namespace {

using Scale = LevelFormat::Scale;

enum Fault : uint32_t { kNotFinite = 1, kNormTooLarge = 2 };  // bits

// What is coded of a block, value by value, and what is kept of it.
struct Source {
  const float* x;
  float* kept;
  Memory memory;
  __device__ float value(int64_t i) const {
    return memory == Memory::none ? x[i] : memory == Memory::error ? x[i] + kept[i] : x[i] - kept[i];
  }
  // After its code says `decoded` of value z; kept[i] is that of before.
  __device__ void keep(int64_t i, float z, float decoded) const {
    if (memory == Memory::error) kept[i] = z - decoded;
    if (memory == Memory::estimate) kept[i] = kept[i] + decoded;
  }
};

struct Job {
  const float* x;
  Memory memory;
  float* kept;
  const CodedBlock* blocks;
  Draws draws;
  int64_t element;
  uint32_t* words;
  uint32_t* fault;
  __device__ Source source(const CodedBlock& block) const {
    return {x + block.begin, memory == Memory::none ? nullptr : kept + block.kept, memory};
  }
};

__device__ bool is_finite(float x) { return std::abs(x) <= std::numeric_limits<float>::max(); }

// All threads of the block get the scale: its first half warp adds, in the CPU's order.
__device__ float scale_of(const Source& source, int64_t n, Scale kind, double clip_sigma, uint32_t* fault) {
  __shared__ double squares;
  int32_t most = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const int32_t size = size_bits(source.value(i));
    most = size > most ? size : most;
  }
  const float largest = std::bit_cast<float>(block_reduce(most, Larger{}));
  if (threadIdx.x == 0 && !is_finite(largest)) atomicOr(fault, uint32_t{kNotFinite});
  if (kind == Scale::largest || (kind == Scale::clipped && !(clip_sigma > 0))) return largest;
  if (threadIdx.x < 32) {
    const double sum = lane_sum(n, [&](int64_t i) {
      const auto z = static_cast<double>(source.value(i));
      return z * z;
    });
    if (threadIdx.x == 0) squares = sum;
  }
  __syncthreads();
  if (kind == Scale::norm) {
    const auto norm = static_cast<float>(std::sqrt(squares));
    if (threadIdx.x == 0 && is_finite(largest) && !is_finite(norm)) atomicOr(fault, uint32_t{kNormTooLarge});
    return norm;
  }
  const auto bound = static_cast<float>(clip_sigma * std::sqrt(squares / static_cast<double>(n)));
  return bound < largest ? bound : largest;
}

// A block of threads codes a block of values.
template <int kBits>
__global__ void encode_levels_kernel(Job job, LevelFormat format) {
  const CodedBlock block = job.blocks[blockIdx.x];
  const Source source = job.source(block);
  uint32_t* code = job.words + block.at;
  float scale = scale_of(source, block.n, format.scale, format.clip_sigma, job.fault);
  const float most = static_cast<float>(format.levels);
  float factor = most / scale;
  if (!is_finite(factor)) factor = scale = 0;
  const float step = scale / most;
  if (threadIdx.x == 0) code[0] = std::bit_cast<uint32_t>(scale);
  for_quads(block.n, [&](int64_t i) {
    uint32_t fields = 0;
    if (i < block.n) {
      const FourWords random = format.random ? four_words(job.draws, job.element + block.begin + i) : FourWords{};
      for (int k = 0; k < kQuad && i + k < block.n; ++k) {
        const float z = source.value(i + k);
        float v = z * factor;
        if (format.random) v = static_cast<float>(random.words[k] >> 8) * 0x1p-24f + v;
        v = v > -most ? v < most ? v : most : -most;
        if (format.random) v = std::floor(v);
        const auto level = static_cast<int32_t>(std::bit_cast<uint32_t>(v + 12582912.0f) - 0x4B400000u);
        fields |= (static_cast<uint32_t>(level) & ((1u << kBits) - 1)) << (kBits * k);
        source.keep(i + k, z, static_cast<float>(level) * step);
      }
    }
    store_quad<kBits>(fields, i, block.n, code + 1);
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
  __device__ Reader of(const uint32_t* code, int64_t) const {
    return {code, std::bit_cast<float>(code[0]) / static_cast<float>(levels), bits};
  }
};

struct Means {
  const uint32_t* words;
  int64_t stride;
  int senders;
  const CodedBlock* blocks;
  bool moves;
  float* mean;
  __device__ void put(int64_t i, float sum) const {
    const float value = senders > 1 ? sum / static_cast<float>(senders) : sum;
    mean[i] = moves ? mean[i] + value : value;
  }
};

// A block of threads a block of values.
template <class Format>
__global__ void mean_kernel(Means means, Format format) {
  const CodedBlock block = means.blocks[blockIdx.x];
  const uint32_t* code = means.words + block.at;
  for (int64_t i = threadIdx.x; i < block.n; i += blockDim.x) {
    float sum = format.of(code, block.n)(i);
    for (int sender = 1; sender < means.senders; ++sender)
      sum = sum + format.of(code + sender * means.stride, block.n)(i);
    means.put(block.begin + i, sum);
  }
}

__global__ void encode_one_bit_kernel(Job job) {
  __shared__ double sums[2];  // of what is not negative, of the others
  const CodedBlock block = job.blocks[blockIdx.x];
  const Source source = job.source(block);
  uint32_t* code = job.words + block.at;
  int32_t plus = 0, most = 0;
  for (int64_t i = threadIdx.x; i < block.n; i += blockDim.x) {
    const float z = source.value(i);
    plus += z >= 0;
    most = size_bits(z) > most ? size_bits(z) : most;
  }
  plus = block_reduce(plus, Plus{});
  if (!is_finite(std::bit_cast<float>(most))) atomicOr(job.fault, uint32_t{kNotFinite});
  if (threadIdx.x < 32) {
    const auto sum = [&](bool positive) {
      return lane_sum(block.n, [&](int64_t i) {
        const auto z = static_cast<double>(source.value(i));
        return (z > 0) == positive ? z : 0.0;
      });
    };
    const double positive = sum(true), negative = sum(false);
    if (threadIdx.x == 0) sums[0] = positive, sums[1] = negative;
  }
  __syncthreads();
  const auto mean = [](double sum, int64_t count) {
    return count > 0 ? static_cast<float>(sum / static_cast<double>(count)) : 0.0f;
  };
  const float one = mean(sums[0], plus), zero = mean(sums[1], block.n - plus);
  if (threadIdx.x == 0) code[0] = std::bit_cast<uint32_t>(one), code[1] = std::bit_cast<uint32_t>(zero);
  for_quads(block.n, [&](int64_t i) {
    uint32_t fields = 0;
    for (int k = 0; k < kQuad && i + k < block.n; ++k) {
      const float z = source.value(i + k);
      fields |= static_cast<uint32_t>(z >= 0) << k;
      source.keep(i + k, z, z >= 0 ? one : zero);
    }
    store_quad<1>(fields, i, block.n, code + 2);
  });
}

struct OneBits {
  struct Reader {
    const uint32_t* code;
    __device__ float operator()(int64_t i) const {
      return std::bit_cast<float>(code[code[2 + i / 32] >> (i % 32) & 1 ? 0 : 1]);
    }
  };
  __device__ Reader of(const uint32_t* code, int64_t) const { return {code}; }
};

constexpr int kSelectors = 512;  // threads of a block that looks for the largest values

// The least magnitude among the k largest of the block of values, by its bits, and how many that have it are among
// them: a histogram of eight bits at a time.
struct Bound {
  uint32_t least, equal;
};
__device__ Bound find_bound(const Source& source, int64_t n, int64_t k) {
  constexpr uint32_t kBins = 256;
  __shared__ uint32_t histogram[kBins];
  __shared__ Bound bound;
  uint32_t known = 0;
  if (threadIdx.x == 0) bound = {0, static_cast<uint32_t>(k)};
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (uint32_t bin = threadIdx.x; bin < kBins; bin += blockDim.x) histogram[bin] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const auto size = static_cast<uint32_t>(size_bits(source.value(i)));
      if ((size & known) == bound.least) atomicAdd(histogram + (size >> shift & (kBins - 1)), 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      uint32_t bin = kBins - 1;
      for (; bound.equal > histogram[bin]; --bin) bound.equal -= histogram[bin];
      bound.least |= bin << shift;
    }
    known |= (kBins - 1) << shift;
    __syncthreads();
  }
  return bound;
}

// How many of a flag's bearers the threads before this one are, and how many of the whole block; all threads call it.
__device__ int count_before(bool flag, int& all) {
  __shared__ int of_warps[32];
  const uint32_t bits = __ballot_sync(0xFFFFFFFFu, flag);
  __syncthreads();  // what an earlier call left has been read
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = __popc(bits);
  __syncthreads();
  int before = __popc(bits & ((1u << (threadIdx.x % 32)) - 1));
  all = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) {
    if (warp < threadIdx.x / 32) before += of_warps[warp];
    all += of_warps[warp];
  }
  return before;
}

__device__ void put_place(uint32_t* places, bool narrow, int64_t at, int64_t place) {
  if (narrow) reinterpret_cast<uint16_t*>(places)[at] = static_cast<uint16_t>(place);
  else places[at] = static_cast<uint32_t>(place);
}

__device__ int64_t place_at(const uint32_t* places, bool narrow, int64_t at) {
  return narrow ? reinterpret_cast<const uint16_t*>(places)[at] : places[at];
}

__global__ void encode_largest_kernel(Job job, LargestFormat format) {
  const CodedBlock block = job.blocks[blockIdx.x];
  const Source source = job.source(block);
  const int64_t k = largest_chosen(format.density, block.n);
  const bool narrow = block.n <= kNarrowPlaces;
  uint32_t *code = job.words + block.at, *places = code + k;
  bool bad = false;
  for (int64_t i = threadIdx.x; i < block.n; i += blockDim.x) bad = bad || !is_finite(source.value(i));
  if (bad) atomicOr(job.fault, uint32_t{kNotFinite});
  const Bound bound = find_bound(source, block.n, k);
  if (narrow && k % 2 == 1 && threadIdx.x == 0) put_place(places, narrow, k, 0);
  int64_t larger = 0, equal = 0;  // among the values before
  for (int64_t first = 0; first < block.n; first += blockDim.x) {
    const int64_t i = first + threadIdx.x;
    const float z = i < block.n ? source.value(i) : 0.0f;
    const auto size = static_cast<uint32_t>(size_bits(z));
    const bool is_larger = i < block.n && size > bound.least, is_equal = i < block.n && size == bound.least;
    int all_larger, all_equal;
    const int64_t larger_before = larger + count_before(is_larger, all_larger);
    const int64_t equal_before = equal + count_before(is_equal, all_equal), most = bound.equal;
    larger += all_larger, equal += all_equal;
    if (i >= block.n) continue;
    if (is_larger || (is_equal && equal_before < most)) {
      const int64_t at = larger_before + (equal_before < most ? equal_before : most);
      code[at] = std::bit_cast<uint32_t>(z);
      put_place(places, narrow, at, i);
      source.keep(i, z, z);
    } else if (source.memory == Memory::error) {
      source.kept[i] = z;
    }
  }
}

// sums: room for all values, where means move by them.
__global__ void mean_of_largest_kernel(Means means, LargestFormat format, float* sums) {
  const CodedBlock block = means.blocks[blockIdx.x];
  const int64_t k = largest_chosen(format.density, block.n);
  const bool narrow = block.n <= kNarrowPlaces;
  float* sum = (means.moves ? sums : means.mean) + block.begin;
  for (int64_t i = threadIdx.x; i < block.n; i += blockDim.x) sum[i] = 0;
  for (int sender = 0; sender < means.senders; ++sender) {
    __syncthreads();  // the places of one sender differ
    const uint32_t* code = means.words + sender * means.stride + block.at;
    for (int64_t at = threadIdx.x; at < k; at += blockDim.x) {
      const int64_t i = place_at(code + k, narrow, at);
      const auto value = std::bit_cast<float>(code[at]);
      sum[i] = sender == 0 ? value : sum[i] + value;
    }
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < block.n; i += blockDim.x) means.put(block.begin + i, sum[i]);
}

void encode(Cuda device, const Job& job, int64_t count, const LevelFormat& format) {
  const auto run = [&](auto kernel) { launch(device, format.name, kernel, count, kBlock, job, format); };
  if (level_bits(format.levels) == 2) run(encode_levels_kernel<2>);
  else if (level_bits(format.levels) == 4) run(encode_levels_kernel<4>);
  else run(encode_levels_kernel<8>);
}

void mean(Cuda device, const Means& means, int64_t count, int64_t, const LevelFormat& format) {
  launch(device, format.name, mean_kernel<Levels>, count, kBlock, means,
         Levels{format.levels, level_bits(format.levels)});
}

void encode(Cuda device, const Job& job, int64_t count, const OneBitFormat&) {
  launch(device, "one_bit", encode_one_bit_kernel, count, kBlock, job);
}

void mean(Cuda device, const Means& means, int64_t count, int64_t, const OneBitFormat&) {
  launch(device, "one_bit", mean_kernel<OneBits>, count, kBlock, means, OneBits{});
}

void encode(Cuda device, const Job& job, int64_t count, const LargestFormat& format) {
  launch(device, "topk", encode_largest_kernel, count, kSelectors, job, format);
}

void mean(Cuda device, const Means& means, int64_t count, int64_t values, const LargestFormat& format) {
  const Tensor sums({means.moves ? values : 0});
  launch(device, "topk", mean_of_largest_kernel, count, kSelectors, means, format, sums.cuda_data<float>());
}

[[noreturn]] void refuse() {
  fail(
      "block codes: this compressor has no kernels for a GPU, since its format() names none; train on the CPU, or take "
      "one of Godwit's own, as exchange qsgd");
}

void encode(Cuda, const Job&, int64_t, const std::monostate&) { refuse(); }
void mean(Cuda, const Means&, int64_t, int64_t, const std::monostate&) { refuse(); }

}  // namespace

bool encode_blocks(Cuda device, const BlockCodec& codec, const float* x, Memory memory, float* kept,
                   const Table<CodedBlock>& blocks, const Draws& draws, int64_t element, uint32_t* words) {
  const auto count = static_cast<int64_t>(blocks.all.size());
  const Tensor fault = Tensor::zeros({1}, DType::u32);
  const Job job{x, memory, kept, table_on(device, blocks), draws, element, words, fault.cuda_data<uint32_t>()};
  const CodeFormat format = codec.format();
  std::visit([&](const auto& f) { encode(device, job, count, f); }, format);
  const uint32_t found = fault.to_vector<uint32_t>()[0];
  if (found & kNotFinite) return false;
  check(found == 0, "qsgd: the norm of a block of gradients is beyond float32; lower the learning rate");
  return true;
}

void mean_of_blocks(Cuda device, const BlockCodec& codec, const uint32_t* words, int64_t stride, int senders,
                    const Table<CodedBlock>& blocks, bool moves, float* mean_at) {
  const Means means{words, stride, senders, table_on(device, blocks), moves, mean_at};
  const auto count = static_cast<int64_t>(blocks.all.size());
  const int64_t values = count > 0 ? blocks.all.back().begin + blocks.all.back().n : 0;
  const CodeFormat format = codec.format();
  std::visit([&](const auto& f) { mean(device, means, count, values, f); }, format);
}

}  // namespace godwit
