// Birder, also known as BinSGDM (Birder paper, Algorithm 1), over Hierarchical-1-bit-All-Reduce (its section 4).
#pragma once
#include "optim/birder_kernels.h"
#include "optim/factory.h"

namespace godwit {

// Worker i (a node, after the mean over its workers):  u = Q(m/(b+ε) + e), one bit per value. The owner of a segment:
// ū = Q(mean u + ē). Everyone:  x ← (1−αλ)x − αū. Results do not depend on bucket sizes or thread counts.
class Birder : public Optimizer {
 public:
  // Buckets are float32 and padded to a multiple of 32·workers per node·nodes.
  Birder(const OptimizerConfig& config, const Buckets& buckets, const Communicator& comm, uint64_t seed);

  // Agrees on the bucket's signs; throws, naming step and parameter, when a gradient is not finite.
  void exchange(Bucket& bucket, Communicator& comm, const StepInfo& step) override;
  void apply(Bucket& bucket, const StepInfo& step) override;

  // "m", "b", "b_hat" (with t0), "e" of the values this rank works on, "server_e" of those it is the server of; without
  // padding, so a rank may have none of a bucket.
  std::vector<StatePart> state() const override;

 private:
  // A bucket's values [begin, begin + length), of which `count` are not padding.
  struct Range {
    int64_t begin, length, count;
  };
  struct Part {
    int64_t bucket_begin;   // global offset
    Range worked, served;   // as a worker (the shard), as a server (the segment)
    Tensor m, b, b_hat, e;  // [worked.length], undefined when not used
    Tensor server_e;        // [served.length]
    Tensor words;           // [padded / 32]: what apply() reads
  };
  static Range share(const Range& whole, int parts, int index);

  Part& part_of(const Bucket& bucket);
  void exchange_hierarchical(Bucket& bucket, Communicator& comm, const StepInfo& step);
  void exchange_all_gather(Bucket& bucket, Communicator& comm, const StepInfo& step);
  void worker_step(const Bucket& bucket, Part& part, const Tensor& gradient, const Tensor& words, uint32_t sender,
                   const StepInfo& step);
  void server_step(Part& part, const Tensor& words, int senders, const Tensor& agreed, const StepInfo& step);
  birder::Draw draw(const StepInfo& step, Purpose purpose, uint32_t sender, int64_t begin) const;

  OptimizerConfig config_;
  uint64_t seed_;
  bool all_gather_;
  std::vector<Part> parts_;
};

}  // namespace godwit
