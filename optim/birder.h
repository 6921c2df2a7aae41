// Birder, also known as BinSGDM (Birder paper, Algorithm 1), over Hierarchical-1-bit-All-Reduce (its section 4).
#pragma once
#include "optim/kernels/birder_kernels.h"
#include "optim/factory.h"

namespace godwit {

// Worker i (a node, after the mean over its workers):  u = Q(m/(b+ε) + e), one bit per value. The owner of a segment:
// ū = Q(mean u + ē). Everyone:  x ← (1−αλ)x − αū. Results do not depend on bucket sizes or thread counts.
// With the automatic mask a parameter sleeps until some node has a gradient for it: it does not move at all, nor decay.
// Meanwhile the bits say another thing, so that nothing is sent beside them: a node's is 1 once its b is not 0, the
// server's where any node's is, and where it is 1 the parameter is awake for all later steps. In that step it does not
// move yet; the node's e keeps the ratio. Named parameters may be frozen: they never wake.
class Birder : public Optimizer {
 public:
  // Buckets are float32 and padded to a multiple of 32·workers per node·nodes.
  Birder(const OptimizerConfig& config, const Buckets& buckets, const Communicator& comm, uint64_t seed);

  // Agrees on the bucket's signs; throws, naming step and parameter, when a gradient is not finite. On a GPU, which is
  // not waited for here, apply() does, before it changes anything.
  void exchange(Bucket& bucket, Communicator& comm, const StepInfo& step) override;
  bool refuses_not_finite() const override { return true; }
  void apply(Bucket& bucket, const StepInfo& step) override;

  // "m", "b", "b_hat" (with t0), "e" of the values this rank works on, "server_e" of those it is the server of; without
  // padding, so a rank may have none of a bucket. Errors in 8 bits are int8 in units of 1/64. "awake", with a mask: one
  // bit a value.
  std::vector<StatePart> state() const override;

 private:
  // A bucket's values [begin, begin + length), of which `count` are not padding.
  struct Range {
    int64_t begin, length, count;
  };
  struct Part {
    int64_t bucket_begin;   // global offset
    int64_t numel;          // of the bucket, without padding
    Range worked, served;   // as a worker (the shard), as a server (the segment)
    Tensor m, b, b_hat, e;  // [worked.length], undefined when not used
    Tensor server_e;        // [served.length]
    Tensor words;           // [padded / 32]: what apply() reads
    Tensor awake, frozen;   // [padded / 32], bits; undefined without a mask
    Tensor not_finite;      // [1], not 0 when a value of `unchecked` is not finite
    Tensor unchecked;       // the last gradient, until not_finite was looked at
  };
  static Range share(const Range& whole, int parts, int index);

  Part& part_of(const Bucket& bucket);
  void make_masks(const Bucket& bucket, const std::vector<std::string>& frozen, Part& part) const;
  void exchange_hierarchical(Bucket& bucket, Communicator& comm, const StepInfo& step);
  void exchange_all_gather(Bucket& bucket, Communicator& comm, const StepInfo& step);
  void worker_step(const Bucket& bucket, Part& part, const Tensor& gradient, const Tensor& words, uint32_t sender,
                   const StepInfo& step);
  void check_finite(const Bucket& bucket, Part& part, const StepInfo& step);
  template <class Moment, class Error>
  void worker_step(const Part& part, const Tensor& gradient, const Tensor& words, const StepInfo& step,
                   const birder::Draw& draw) const;
  void server_step(Part& part, const Tensor& words, int senders, const Tensor& agreed, const StepInfo& step);
  birder::Draw draw(const StepInfo& step, Purpose purpose, uint32_t sender, int64_t begin) const;

  OptimizerConfig config_;
  uint64_t seed_;
  bool all_gather_;
  std::vector<Part> parts_;
};

}  // namespace godwit
