// The mean over all ranks in one bit per value each way, with error feedback at sender and owner (0/1 Adam paper,
// Algorithm 2).
#pragma once
#include <string>
#include <vector>

#include "comm/parallel/blocks.h"
#include "comm/group.h"
#include "comm/state_tensor.h"
#include "comm/compress/wire/scaled_signs.h"

namespace godwit {

struct ErrorFeedbackOptions {
  SignScale scale = SignScale::l1_mean;
  // Values that share a scale; parameters are cut into such blocks. 0: whole parameters. −1: everything a sender sends,
  // as in the paper, which needs the model in one bucket; then results depend on the number of ranks by more than the
  // mean.
  int64_t scale_block = 4096;
};
std::vector<std::string> sign_scale_names();
SignScale sign_scale(const std::string& name);  // l1_mean or l2_rms; throws for another

// With C[y] = s·sign(y) and one scale s a block:
//   worker i:  ẑᵢ = C[zᵢ + δᵢ],  δᵢ ← zᵢ + δᵢ − ẑᵢ;  all-to-all, so that a segment's owner gets it from everyone
//   owner:     z̄ = C[mean ẑ + δ̄],  δ̄ ← mean ẑ + δ̄ − z̄;  all-gather
// Signs and scales travel in one message of 4·(most scales of a segment) + 4·⌈most values of a segment/32⌉ bytes to
// each peer and phase. A single rank's ẑ is the result: what its owner would return. With blocks of one value nothing
// is rounded and the result is the mean itself. Values are float32; results depend neither on bucket sizes nor on
// threads.
class ErrorFeedbackAllReduce {
 public:
  // `name` begins its phases, "name/all_to_all" and "name/all_gather", and its errors. References are read only during
  // the call.
  ErrorFeedbackAllReduce(const std::string& name, const ErrorFeedbackOptions& options, const Buckets& buckets,
                         const Communicator& comm);

  // mean ← the agreed z̄ of z, the same bits on all ranks; both hold at least bucket.numel values and may be one tensor.
  // Padding is left alone. Throws, naming step and parameter, when a value of z, or a scale, is not finite.
  void mean(const Bucket& bucket, const Tensor& z, const Tensor& mean, Communicator& comm, int64_t step);

  std::vector<StatePart> state() const;  // "e" of all values; "server_e" of those this rank owns

 private:
  struct Part {
    int64_t bucket_begin, numel;  // global offset
    Segment owned;
    int64_t words;           // of a message
    SignTiles sent, served;  // all values, in the messages to all owners; those owned, in one message
    Tensor e, server_e;      // server_e: undefined with one rank
  };
  Part& part_of(const Bucket& bucket);

  std::string name_;
  SignScale scale_;
  std::vector<Part> parts_;
};

}  // namespace godwit
