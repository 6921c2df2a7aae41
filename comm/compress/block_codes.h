// Many blocks at once to their codes and back: block by block on the CPU's threads, in one launch or two on a GPU,
// where the codecs that say their format have kernels. The same bits on both.
#pragma once
#include "comm/compress/compressor.h"
#include "comm/compress/table.h"
#include "engine/device.h"

namespace godwit {

// Values [begin, begin + n) of a bucket, whose code begins at word `at` of the messages; `kept`: where what is kept of
// them begins.
struct CodedBlock {
  int64_t begin, n, at, kept;
  int64_t numel() const { return n; }
};

// What is kept, per value and in the gradient's unit, so that what coding loses is not lost.
enum class Memory {
  none,
  error,     // e:  z = g + e;  the message is C(z);  e ← z − decoded
  estimate,  // EF21 (Richtárik et al. 2021), h:  the message is C(g − h);  h ← h + decoded;  the mean is that of h
};

// Codes of all blocks of x; `kept` is not read with Memory::none. Draws name the bucket's values, of which `element` is
// the first. Returns false where a value to be coded is not finite: then neither codes nor what is kept may be used. On
// a GPU: waits for that.
bool encode_blocks(Cpu, const BlockCodec& codec, const float* x, Memory memory, float* kept,
                   const BlockTable<CodedBlock>& blocks, const Draws& draws, int64_t element, uint32_t* words);
bool encode_blocks(Cuda, const BlockCodec& codec, const float* x, Memory memory, float* kept,
                   const BlockTable<CodedBlock>& blocks, const Draws& draws, int64_t element, uint32_t* words);

// mean of the senders' messages, `stride` words apart: added in their order, then divided; of one sender what it sent.
// With `moves` it is added to what is there.
void mean_of_blocks(Cpu, const BlockCodec& codec, const uint32_t* words, int64_t stride, int senders,
                    const BlockTable<CodedBlock>& blocks, bool moves, float* mean);
void mean_of_blocks(Cuda, const BlockCodec& codec, const uint32_t* words, int64_t stride, int senders,
                    const BlockTable<CodedBlock>& blocks, bool moves, float* mean);

}  // namespace godwit
