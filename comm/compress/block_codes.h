// Encodes and decodes many blocks at once. The CPU distributes the blocks over threads. A GPU needs one or two
// launches, for compressors whose format() has kernels. CPU and GPU results are bit-identical.
#pragma once
#include "comm/compress/compressor.h"
#include "comm/compress/table.h"
#include "engine/device.h"

namespace godwit {

// Values [begin, begin + n) of a bucket. Their code begins at word `at` of a message. Their state begins at index
// `kept` of the array `kept` that is passed to encode_blocks().
struct CodedBlock {
  int64_t begin, n, at, kept;          // see above
  int64_t numel() const { return n; }  // number of values
};

// Per-value state that compensates for the coding error, in the unit of the gradient. C(z) is the code of z.
enum class Feedback {
  none,
  residual,  // e, error feedback:  z = g + e;  the message is C(z);  e ← z − decoded
  ef21,  // h, EF21 (Richtárik et al. 2021):  the message is C(g − h);  h ← h + decoded;  the result is the mean of h
};

enum Fault : uint32_t { kNotFinite = 1, kNormTooLarge = 2 };  // bits of encode_blocks()'s result

// Encodes all blocks of x. `kept` is unused with Feedback::none. `element` is the global offset of the bucket's first
// value; together with `rng` it keys the random numbers. Returns the faults for encoded(), on the device.
[[nodiscard]] Tensor encode_blocks(Cpu, const Compressor& compressor, const float* x, Feedback feedback, float* kept,
                                   const BlockTable<CodedBlock>& blocks, const RngKey& rng, int64_t element,
                                   uint32_t* words);
[[nodiscard]] Tensor encode_blocks(Cuda, const Compressor& compressor, const float* x, Feedback feedback, float* kept,
                                   const BlockTable<CodedBlock>& blocks, const RngKey& rng, int64_t element,
                                   uint32_t* words);
// Reads the result of encode_blocks(). Returns false if a value was not finite; codes and `kept` are then unusable.
// Throws if the norm of a block overflows float32. For a tensor on a GPU, the host waits.
bool encoded(const Tensor& faults);

// Computes the mean of the senders' messages, which are `stride` words apart. The decoded values are added in sender
// order and then divided; with one sender, they are the result. The result replaces `mean`, or is added to it if
// `moves` is true.
void mean_of_blocks(Cpu, const Compressor& compressor, const uint32_t* words, int64_t stride, int senders,
                    const BlockTable<CodedBlock>& blocks, bool moves, float* mean);
void mean_of_blocks(Cuda, const Compressor& compressor, const uint32_t* words, int64_t stride, int senders,
                    const BlockTable<CodedBlock>& blocks, bool moves, float* mean);

}  // namespace godwit
