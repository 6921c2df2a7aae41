// Shared parts of the kernels that encode blocks. Each thread block handles one piece. A piece is a whole short block,
// which takes a single pass, or part of a long block, which earlier launches have measured.
#pragma once
#include "comm/compress/block_codes.h"
#include "comm/compress/cuda/block_sums.h"
#include "comm/compress/cuda/table.h"
#include "engine/cuda/reduce.h"

namespace godwit::coding {

// The values of a piece before coding, and the piece's Feedback state.
struct Source {
  const float* x;
  float* kept;
  Feedback feedback;
  __device__ float value(int64_t i) const {
    return feedback == Feedback::none ? x[i] : feedback == Feedback::residual ? x[i] + kept[i] : x[i] - kept[i];
  }
  // Updates kept[i] after z was coded as `decoded`. kept[i] must still be the old value.
  __device__ void keep(int64_t i, float z, float decoded) const {
    if (feedback == Feedback::residual) kept[i] = z - decoded;
    if (feedback == Feedback::ef21) kept[i] = kept[i] + decoded;
  }
};

// Arguments of an encoding; see encode_blocks().
struct Job {
  const float* x;
  Feedback feedback;
  float* kept;
  const CodedBlock* blocks;
  const BlockPiece* pieces;
  RngKey rng;
  int64_t element;
  uint32_t* words;
  uint32_t* fault;

  __device__ Source source(const BlockPiece& piece) const {
    const CodedBlock& block = blocks[piece.block];
    return {x + block.begin + piece.begin, feedback == Feedback::none ? nullptr : kept + block.kept + piece.begin,
            feedback};
  }
  __device__ uint32_t* code(const BlockPiece& piece) const { return words + blocks[piece.block].at; }
};

// Loads the piece's values into z[piece.n]. All threads get the bits of the largest magnitude and may then read all of
// z. Sets kNotFinite if a value is not finite.
__device__ inline int32_t load_values(const Job& job, const BlockPiece& piece, float* z) {
  const Source source = job.source(piece);
  int32_t most = 0;
  for (int64_t i = threadIdx.x; i < piece.n; i += blockDim.x) {
    z[i] = source.value(i);
    most = size_bits(z[i]) > most ? size_bits(z[i]) : most;
  }
  most = block_reduce(most, Larger{});
  if (threadIdx.x == 0 && most >= 0x7F800000) atomicOr(job.fault, uint32_t{kNotFinite});
  return most;
}

// Arguments of a decoding; see mean_of_blocks().
struct Means {
  const uint32_t* words;
  int64_t stride;
  int senders;
  const CodedBlock* blocks;
  const BlockPiece* pieces;
  bool moves;
  float* mean;
  __device__ void put(int64_t i, float sum) const {
    const float value = senders > 1 ? sum / static_cast<float>(senders) : sum;
    mean[i] = moves ? mean[i] + value : value;
  }
};

// Defined in comm/compress/block_largest.cu.
void encode_largest(Cuda device, const Job& job, const BlockPieces& pieces, const LargestFormat& format);
void mean_of_largest(Cuda device, const Means& means, int64_t pieces, const LargestFormat& format);

}  // namespace godwit::coding
