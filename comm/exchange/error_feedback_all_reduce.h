// All-reduce mean with one bit per value in each direction, and error feedback at the sender and the owner (0/1 Adam
// paper, Algorithm 2).
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "comm/buckets/blocks.h"
#include "comm/compress/wire/scaled_signs.h"
#include "comm/group.h"
#include "comm/state_tensor.h"

namespace godwit {

struct ErrorFeedbackOptions {
  SignScale scale = SignScale::l1_mean;  // scale of a block's signs
  // Number of values per scale; parameters are cut into blocks of this size. 0: one block per parameter. −1: one scale
  // per sender, as in the paper. With −1, the model must be in one bucket, and the owners' scales depend on the number
  // of ranks.
  int64_t scale_block = 4096;
};

// With C[y] = s·sign(y) and one scale s per block:
//   worker i:  ẑᵢ = C[zᵢ + eᵢ],  eᵢ ← zᵢ + eᵢ − ẑᵢ;  all-to-all: each segment's owner receives ẑᵢ from all ranks
//   owner:     z̄ = C[mean ẑ + ē],  ē ← mean ẑ + ē − z̄;  all-gather
// In each phase, a rank sends one message with scales and signs to each peer. Its size is 4·(most scales of a segment)
// + 4·⌈most values of a segment/32⌉ bytes. With one rank, ẑ is the result. With blocks of one value, the result is the
// exact mean. Values are float32. Results depend neither on bucket sizes nor on thread counts.
class ErrorFeedbackAllReduce {
 public:
  // `name` is the prefix of phases ("name/all_to_all", "name/all_gather") and errors. References are used only during
  // the call.
  ErrorFeedbackAllReduce(const std::string& name, const ErrorFeedbackOptions& options, const Buckets& buckets,
                         const Communicator& comm);

  // Collective: mean ← z̄ of z, bit-identical on all ranks. z and mean have at least bucket.numel values and may be one
  // tensor. Padding is unchanged. If a value of z or a scale is not finite, throws an Error that names the parameter or
  // bucket.
  void mean(const Bucket& bucket, const Tensor& z, const Tensor& mean, Communicator& comm, int64_t step);

  const Tensor& residual(const Bucket& bucket) { return bucket_state(bucket).e; }  // eᵢ of the bucket
  // ē of the values of the bucket that this rank owns, and their range. Undefined with one rank.
  std::pair<Tensor, Segment> owner_residual(const Bucket& bucket) {
    return {bucket_state(bucket).server_e, bucket_state(bucket).owned};
  }
  std::vector<StateTensor> state() const;  // "e" of all values, and "server_e" of the owned segment

 private:
  struct BucketState {
    int64_t bucket_begin, numel;  // bucket_begin: global offset
    Segment owned;
    int64_t words;           // words per message
    SignTiles sent, served;  // tiles of all values in the messages; tiles of the owned segment in one message
    Tensor e, server_e;      // server_e: undefined with one rank
  };
  BucketState& bucket_state(const Bucket& bucket);

  std::string name_;
  SignScale scale_;
  std::vector<BucketState> states_;
};

}  // namespace godwit
