// Top-k codes in the format of comm/exchange/topk.cpp: the largest values of each block and their indices.
#include <bit>

#include "comm/compress/cuda/block_coding.h"
#include "comm/compress/wire/select.h"

namespace godwit::coding {
namespace {

constexpr int kSelectors = 512;  // threads per block
constexpr int kBins = 2048;      // a magnitude's 31 bits are examined as digits of 11, 10 and 10 bits
constexpr int kFirstShift = 20, kDigit = 10;

// Magnitude bits of the smallest selected value, and how many values of that magnitude are selected.
struct Bound {
  uint32_t least, equal;
};

// Number of values in some pieces that are larger than the bound, and equal to it.
struct Found {
  int64_t larger, equal;
};

// Counts a value in the histogram of its digit at `shift` if its higher digits equal the bound's.
__device__ void count_digit(float z, int shift, const Bound& bound, uint32_t* histogram) {
  const auto size = static_cast<uint32_t>(size_bits(z));
  const bool first = shift == kFirstShift;
  if (!first && size >> (shift + kDigit) != bound.least >> (shift + kDigit)) return;
  atomicAdd(histogram + (first ? size >> shift : size >> shift & ((1u << kDigit) - 1)), 1u);
}

// Sets the bound's digit at `shift` from the digit's histogram; `equal` becomes the number of selected values in that
// bin. All threads call it; `bound` is in shared memory and complete on return.
__device__ void find_digit(const uint32_t* histogram, int shift, Bound& bound) {
  constexpr int kOwn = kBins / kSelectors, kOfLane = kSelectors / 32;
  __shared__ uint32_t sums[kSelectors];
  uint32_t own = 0;
  for (int bin = 0; bin < kOwn; ++bin) own += histogram[threadIdx.x * kOwn + bin];
  sums[threadIdx.x] = own;
  __syncthreads();
  if (threadIdx.x < 32) {
    const Bound before = bound;
    uint32_t of_lane = 0;
    for (int i = 0; i < kOfLane; ++i) of_lane += sums[threadIdx.x * kOfLane + i];
    uint32_t from_here = of_lane;  // values in the bins of this lane and of later lanes
    for (unsigned by = 1; by < 32; by *= 2) {
      const uint32_t other = __shfl_down_sync(0xFFFFFFFFu, from_here, by);
      if (threadIdx.x + by < 32) from_here += other;
    }
    const uint32_t above = from_here - of_lane;
    __syncwarp();  // all lanes have read the bound: shuffles do not order memory
    if (above < before.equal && before.equal <= from_here) {
      uint32_t left = before.equal - above, i = threadIdx.x * kOfLane + kOfLane - 1;
      for (; left > sums[i]; --i) left -= sums[i];
      uint32_t bin = i * kOwn + kOwn - 1;
      for (; left > histogram[bin]; --bin) left -= histogram[bin];
      bound = {before.least | bin << shift, left};
    }
  }
  __syncthreads();
}

// The bound of a short block's values. All threads call it.
__device__ Bound find_bound(const float* z, int64_t n, int64_t k) {
  __shared__ uint32_t histogram[kBins];
  __shared__ Bound bound;
  if (threadIdx.x == 0) bound = {0, static_cast<uint32_t>(k)};
  for (int shift = kFirstShift; shift >= 0; shift -= kDigit) {
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kSelectors) histogram[bin] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += kSelectors) count_digit(z[i], shift, bound, histogram);
    __syncthreads();
    find_digit(histogram, shift, bound);
  }
  return bound;
}

// Long blocks: adds one digit of all their pieces' values to histograms, which are 0 before.
__global__ void histogram_kernel(Job job, int shift, const Bound* bounds, uint32_t* histograms) {
  __shared__ uint32_t histogram[kBins];
  const BlockPiece piece = job.pieces[blockIdx.x];
  const Source source = job.source(piece);
  for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kSelectors) histogram[bin] = 0;
  __syncthreads();
  const Bound bound = shift == kFirstShift ? Bound{} : bounds[piece.long_block];
  for (int64_t i = threadIdx.x; i < piece.n; i += kSelectors) count_digit(source.value(i), shift, bound, histogram);
  __syncthreads();
  for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kSelectors)
    if (histogram[bin] > 0) atomicAdd(histograms + piece.long_block * kBins + bin, histogram[bin]);
}

// One block of threads per long block. Resets the long block's histogram to 0.
__global__ void digit_kernel(Job job, LargestFormat format, int shift, const LongBlock* blocks, uint32_t* histograms,
                             Bound* bounds) {
  __shared__ Bound bound;
  uint32_t* histogram = histograms + int64_t{blockIdx.x} * kBins;
  const int64_t k = largest_chosen(format.density, job.blocks[blocks[blockIdx.x].block].n);
  if (threadIdx.x == 0) bound = shift == kFirstShift ? Bound{0, static_cast<uint32_t>(k)} : bounds[blockIdx.x];
  __syncthreads();
  find_digit(histogram, shift, bound);
  if (threadIdx.x == 0) bounds[blockIdx.x] = bound;
  for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kSelectors) histogram[bin] = 0;
}

__global__ void count_kernel(Job job, const Bound* bounds, Found* of_pieces) {
  const BlockPiece piece = job.pieces[blockIdx.x];
  const Source source = job.source(piece);
  const uint32_t least = bounds[piece.long_block].least;
  int32_t larger = 0, equal = 0;
  for (int64_t i = threadIdx.x; i < piece.n; i += kSelectors) {
    const auto size = static_cast<uint32_t>(size_bits(source.value(i)));
    larger += size > least, equal += size == least;
  }
  larger = block_reduce(larger, Plus{}), equal = block_reduce(equal, Plus{});
  if (threadIdx.x == 0) of_pieces[blockIdx.x] = {larger, equal};
}

// Sum over the pieces [first, last). All threads call it and get the result.
__device__ Found sum_found(const Found* of_pieces, int64_t first, int64_t last) {
  Found sum{};
  for (int64_t i = first + threadIdx.x; i < last; i += kSelectors)
    sum.larger += of_pieces[i].larger, sum.equal += of_pieces[i].equal;
  return {block_reduce(sum.larger, Plus{}), block_reduce(sum.equal, Plus{})};
}

// Counts the earlier threads of the block that have each flag. Adds the block's totals to `all`. All threads call it.
__device__ Found count_before(bool larger, bool equal, Found& all) {
  __shared__ int of_warps[kSelectors / 32];  // larger ones in the low 16 bits, equal ones above
  const uint32_t lanes_before = (1u << (threadIdx.x % 32)) - 1;
  const uint32_t larger_bits = __ballot_sync(0xFFFFFFFFu, larger), equal_bits = __ballot_sync(0xFFFFFFFFu, equal);
  __syncthreads();  // the previous call's of_warps has been read
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = __popc(larger_bits) | __popc(equal_bits) << 16;
  __syncthreads();
  int before = __popc(larger_bits & lanes_before) | __popc(equal_bits & lanes_before) << 16, sum = 0;
  for (unsigned warp = 0; warp < kSelectors / 32; ++warp) {
    if (warp < threadIdx.x / 32) before += of_warps[warp];
    sum += of_warps[warp];
  }
  all.larger += sum & 0xFFFF, all.equal += sum >> 16;
  return {before & 0xFFFF, before >> 16};
}

__device__ void put_index(uint32_t* indices, bool narrow, int64_t at, int64_t index) {
  if (narrow) reinterpret_cast<uint16_t*>(indices)[at] = static_cast<uint16_t>(index);
  else indices[at] = static_cast<uint32_t>(index);
}

__device__ int64_t index_at(const uint32_t* indices, bool narrow, int64_t at) {
  return narrow ? reinterpret_cast<const uint16_t*>(indices)[at] : indices[at];
}

// `bounds` and `of_pieces` belong to the long blocks.
__global__ void encode_largest_kernel(Job job, LargestFormat format, const LongBlock* blocks, const Bound* bounds,
                                      const Found* of_pieces) {
  __shared__ float values[kSumPiece];
  const BlockPiece piece = job.pieces[blockIdx.x];
  const Source source = job.source(piece);
  const int64_t n = job.blocks[piece.block].n, k = largest_chosen(format.density, n);
  const bool narrow = n <= kNarrowIndices, whole = piece.long_block < 0;
  uint32_t *code = job.code(piece), *indices = code + k;
  load_values(job, piece, values);
  const Bound bound = whole ? find_bound(values, n, k) : bounds[piece.long_block];
  Found before = whole ? Found{} : sum_found(of_pieces, blocks[piece.long_block].first, blockIdx.x);
  if (narrow && k % 2 == 1 && piece.begin == 0 && threadIdx.x == 0) put_index(indices, narrow, k, 0);
  const int64_t most = bound.equal;
  for (int64_t first = 0; first < piece.n; first += kSelectors) {
    const int64_t i = first + threadIdx.x;
    const float z = i < piece.n ? values[i] : 0.0f;
    const auto size = static_cast<uint32_t>(size_bits(z));
    const bool larger = i < piece.n && size > bound.least, equal = i < piece.n && size == bound.least;
    const Found known = before, here = count_before(larger, equal, before);
    if (i >= piece.n) continue;
    const int64_t equal_before = known.equal + here.equal;
    if (larger || (equal && equal_before < most)) {
      const int64_t at = known.larger + here.larger + (equal_before < most ? equal_before : most);
      code[at] = std::bit_cast<uint32_t>(z);
      put_index(indices, narrow, at, piece.begin + i);
      source.keep(i, z, z);
    } else if (source.feedback == Feedback::residual) {
      source.kept[i] = z;
    }
  }
}

// Index of the first of k ascending indices that is >= `index`.
__device__ int64_t first_from(const uint32_t* indices, bool narrow, int64_t k, int64_t index) {
  int64_t begin = 0, end = k;
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (index_at(indices, narrow, middle) < index) begin = middle + 1;
    else end = middle;
  }
  return begin;
}

__global__ void mean_of_largest_kernel(Means means, LargestFormat format) {
  constexpr int kSenders = kSelectors / 2;  // senders whose messages are searched at a time
  __shared__ float sums[kSumPiece];
  __shared__ int64_t ranges[kSelectors];  // begin and end for each sender
  const BlockPiece piece = means.pieces[blockIdx.x];
  const CodedBlock block = means.blocks[piece.block];
  const int64_t k = largest_chosen(format.density, block.n);
  const bool narrow = block.n <= kNarrowIndices;
  for (int64_t i = threadIdx.x; i < piece.n; i += kSelectors) sums[i] = 0;
  for (int first = 0; first < means.senders; first += kSenders) {
    const uint32_t* codes = means.words + first * means.stride + block.at;
    const int count = means.senders - first < kSenders ? means.senders - first : kSenders;
    const int own = static_cast<int>(threadIdx.x) / 2;
    __syncthreads();  // the previous ranges have been read
    if (own < count)
      ranges[threadIdx.x] =
          first_from(codes + own * means.stride + k, narrow, k, piece.begin + (threadIdx.x % 2 == 0 ? 0 : piece.n));
    for (int sender = 0; sender < count; ++sender) {
      __syncthreads();  // one sender's indices are distinct, so additions do not collide
      const uint32_t* code = codes + sender * means.stride;
      for (int64_t at = ranges[2 * sender] + threadIdx.x; at < ranges[2 * sender + 1]; at += kSelectors) {
        const int64_t i = index_at(code + k, narrow, at) - piece.begin;
        const auto value = std::bit_cast<float>(code[at]);
        sums[i] = first + sender == 0 ? value : sums[i] + value;
      }
    }
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < piece.n; i += kSelectors) means.put(block.begin + piece.begin + i, sums[i]);
}

}  // namespace

void encode_largest(Cuda device, const Job& job, const BlockPieces& pieces, const LargestFormat& format) {
  const int64_t blocks = std::ssize(pieces.long_blocks.all), parts = pieces.of_long_blocks;
  const LongBlock* table = blocks > 0 ? table_on(device, pieces.long_blocks) : nullptr;
  const Scratch<Bound> bounds(device, blocks);
  const Scratch<Found> of_pieces(device, parts);
  if (blocks > 0) {
    const Tensor histograms = Tensor::zeros({blocks * kBins}, DType::u32);
    for (int shift = kFirstShift; shift >= 0; shift -= kDigit) {
      launch(device, "topk", histogram_kernel, parts, kSelectors, job, shift, bounds.data(),
             histograms.cuda_data<uint32_t>());
      launch(device, "topk", digit_kernel, blocks, kSelectors, job, format, shift, table,
             histograms.cuda_data<uint32_t>(), bounds.data());
    }
    launch(device, "topk", count_kernel, parts, kSelectors, job, bounds.data(), of_pieces.data());
  }
  launch(device, "topk", encode_largest_kernel, std::ssize(pieces.all.all), kSelectors, job, format, table,
         bounds.data(), of_pieces.data());
}

void mean_of_largest(Cuda device, const Means& means, int64_t pieces, const LargestFormat& format) {
  launch(device, "topk", mean_of_largest_kernel, pieces, kSelectors, means, format);
}

}  // namespace godwit::coding
