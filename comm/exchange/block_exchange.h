// The exchange around a BlockCodec: gradients travel as codes of blocks, their owners average in float32.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/compress/block_codes.h"
#include "comm/exchange/exchange.h"

namespace godwit {

// How the mean of the messages comes back from the owners of its segments.
enum class Reply {
  f32,    // in float32
  coded,  // by the same codec
  owners,  // it does not: it stays with the owners, who are those of the buckets' shards
  none,   // there are no owners: every message goes to every rank. The bits of f32, at bytes that grow with the ranks
};

struct BlockExchangeOptions {
  std::string name;           // begins phases ("<name>/all_to_all") and messages
  int64_t block_size = 1024;  // values; every parameter is cut into such blocks. 0: each is one block
  Reply reply = Reply::f32;
  Memory worker = Memory::none;
  bool server_error = false;  // error feedback of the owners, on the mean; needs Reply::coded
};

// Per bucket: every rank codes its gradient and sends each owner the codes of its segment (all-to-all); the owner adds
// what it decodes in float32 and in rank order, divides once, and the means are all-gathered. Blocks, and so results,
// do not depend on bucket sizes, the number of threads or segments. A single rank's message is the mean as it is.
// Each of the two sends (ranks − 1) messages of the longest segment; Reply::none sends as many of the whole bucket.
// Throws, naming step and parameter, when a gradient is not finite.
std::unique_ptr<Exchange> block_exchange(std::unique_ptr<BlockCodec> codec, const BlockExchangeOptions& options,
                                         const Buckets& buckets, const Communicator& comm, uint64_t seed);

}  // namespace godwit
