// The exchange for a Compressor: gradients are sent as compressed blocks, and owners average them in float32.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/compress/block_codes.h"
#include "comm/exchange/method.h"

namespace godwit {

// How the owners of segments return the means to the ranks.
enum class Reply {
  f32,         // the owners send float32 means to all ranks
  coded,       // the owners send means that the same compressor has encoded
  all_gather,  // no owners: all messages are all-gathered; same bits as f32, bytes grow with the number of ranks
  sharded,     // no reply: each mean stays with its owner; set for Sharding::zero2 and zero3
};
inline std::vector<std::string> choices_of(Reply) { return {"f32", "coded", "none"}; }  // "none" is Reply::all_gather

struct BlockExchangeOptions {
  std::string name;                  // prefix of phases ("<name>/all_to_all") and of error messages
  int64_t block_size = 1024;         // values per block; every parameter is cut into blocks. 0: one block per parameter
  Reply reply = Reply::f32;          // second phase of the exchange
  Feedback worker = Feedback::none;  // error feedback at the senders
  bool server_error = false;         // error feedback of the mean at the owners; needs Reply::coded

  void check() const;  // throws if the fields contradict each other
};
// Options with error feedback at the senders, the owners, both or none.
BlockExchangeOptions block_options(const std::string& name, int64_t block_size, Reply reply, ErrorFeedback feedback);

// For each bucket, every rank encodes its gradient and sends the code of each segment to the segment's owner
// (all-to-all). The owner adds the decoded values in float32 and in rank order, and divides once. The means are
// all-gathered. With one rank, the mean is the decoded message.
//
// Blocks, and therefore results, do not depend on bucket sizes, thread counts or segments. Each collective sends (ranks
// − 1) messages of the size of the longest segment, or of the whole bucket with Reply::all_gather. If a gradient is not
// finite, throws an Error that names the step and the parameter or bucket.
std::unique_ptr<Exchange> block_exchange(std::unique_ptr<Compressor> compressor, const BlockExchangeOptions& options,
                                         const Buckets& buckets, const Communicator& comm, uint64_t seed);

}  // namespace godwit
