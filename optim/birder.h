// Birder, also known as BinSGDM (Birder paper, Algorithm 1), with Hierarchical-1-bit-All-Reduce (section 4 of the
// paper).
#pragma once
#include "comm/exchange/method.h"
#include "optim/kernels/birder_kernels.h"
#include "optim/method.h"

namespace godwit {

// In the formulas, a worker is a node: the gradients of the node's ranks are averaged first. For the updates of m, b
// and e, see optim/kernels/birder_kernels.h.
//   worker:              u = Q(r + e),  r = m/(b+ε);  one bit per value
//   server of a segment: ū = Q(mean u + ē)
//   all ranks:           x ← (1−αλ)x − αū
// Results do not depend on bucket sizes or thread counts.
//
// A frozen parameter is neither updated nor decayed. The parameters in `frozen` are always frozen. With the automatic
// mask, every other parameter is frozen until some node has a nonzero gradient for it.
//
// The sign bits of frozen parameters carry this condition, so no extra data is sent: a node sends 1 once its b is
// nonzero, and the server sends 1 if any node sends 1. This 1 activates the parameter for the later steps. Until then,
// the node's e keeps the ratio.
class Birder : public Optimizer {
 public:
  using Quantizer = birder::Quantizer;         // Q
  enum class Collective { h1ar, all_gather };  // Hierarchical-1-bit-All-Reduce; all-gather of all signs
  enum class Moments { f32, bf16 };            // types of m and b
  enum class Errors { f32, int8 };             // types of e and ē
  enum class Mask { none, automatic };         // see above
  friend std::vector<std::string> choices_of(Collective) { return {"h1ar", "all_gather"}; }
  friend std::vector<std::string> choices_of(Moments) { return {"f32", "bf16"}; }
  friend std::vector<std::string> choices_of(Errors) { return {"f32", "int8"}; }
  friend std::vector<std::string> choices_of(Mask) { return {"none", "automatic"}; }

  struct Options {
    double lr = 5e-3;  // the paper's settings for ResNet-20 with a global batch of 128 (appendix B.1)
    double weight_decay = 0.05;
    bool decay_norm_and_bias = true;
    double beta = 0.95;  // decay rate of m and b
    double eps = 1e-8;
    ErrorFeedback error_feedback = ErrorFeedback::both;
    Quantizer quantizer = Quantizer::random;   // Q
    Collective collective = Collective::h1ar;  // all_gather: for comparison
    int64_t t0 = 0;  // after step t0, b ← max(b, b̂), where b̂ is the moving average of |g|; 0: always b = b̂
    Moments moments = Moments::f32;  // storage of m and b
    Errors errors = Errors::f32;     // storage of e and ē
    Mask mask = Mask::none;          // automatic: freeze parameters until they have a nonzero gradient
    std::string frozen = {};         // comma-separated names of parameters to freeze
    // Not in the paper: r = q√n/√((n−1)q² + 1) with q = m/(b+ε), for n senders. b contains the noise of one sender's
    // gradients. If b is the root mean square of these gradients, and their noise is independent between senders, r is
    // the ratio of the mean gradient. b is the mean magnitude, so r is an approximation.
    bool compensate_nodes = false;
    void describe(OptionList& list);
    void check() const;
  };

  // Buckets must be float32 and padded to a multiple of 32 · workers per node · nodes.
  Birder(const Options& options, const Buckets& buckets, const Communicator& comm, uint64_t seed);

  // Exchanges the bucket's sign bits. If a gradient is not finite, throws an Error that names the step and the
  // parameter; on a GPU, read_on_host() throws it.
  void exchange(Bucket& bucket, Communicator& comm, const StepInfo& step) override;
  bool refuses_not_finite() const override { return true; }
  void apply(Bucket& bucket, const StepInfo& step) override;

  // "m", "b", "b_hat" (with t0) and "e" of the values for which this rank is the worker. "server_e" of the values for
  // which it is the server. "active" (with mask automatic): one bit per value. Padding is excluded, so a rank may have
  // no state of a bucket. 8-bit errors are int8 in units of 1/64.
  std::vector<StateTensor> state() const override;
  void restore(const std::vector<double>& counters) override;  // deactivates the values that `frozen` names

 private:
  // Values [begin, begin + length) of a bucket, including padding. `count`: number of values without padding.
  struct Range {
    int64_t begin, length, count;
  };
  struct BucketState {
    int64_t bucket_begin;              // global offset of the bucket
    int64_t numel;                     // number of values of the bucket, without padding
    Range worker_range, server_range;  // values for which this rank is the worker (shard), and the server (segment)
    Tensor m, b, b_hat, e;             // [worker_range.length]; undefined if unused
    Tensor server_e;                   // [server_range.length]
    Tensor words;                      // [padded / 32], the sign bits that apply() reads
    Tensor active, frozen;             // [padded / 32], bit masks; undefined without a mask
    Tensor not_finite;                 // [1] int64: not_finite_key() of the gradient's first non-finite value
  };
  static Range share(const Range& whole, int parts, int index);

  BucketState& bucket_state(const Bucket& bucket);
  void make_masks(const Bucket& bucket, const std::vector<std::string>& frozen, BucketState& state) const;
  void exchange_hierarchical(Bucket& bucket, Communicator& comm, const StepInfo& step);
  void exchange_all_gather(Bucket& bucket, Communicator& comm, const StepInfo& step);
  void worker_step(const Bucket& bucket, BucketState& state, const Tensor& gradient, const Tensor& words,
                   uint32_t sender, const StepInfo& step);
  void check_finite(const Bucket& bucket, const BucketState& state, const StepInfo& step) const;
  template <class Moment, class Error>
  void worker_step(const BucketState& state, const Tensor& gradient, const Tensor& words, const StepInfo& step,
                   const birder::QuantizerRng& rng) const;
  void server_step(BucketState& state, const Tensor& words, int senders, const Tensor& agreed, const StepInfo& step);
  birder::QuantizerRng rng_for(const StepInfo& step, Purpose purpose, uint32_t sender, int64_t begin) const;

  Options options_;
  uint64_t seed_;
  bool all_gather_;
  int compensated_nodes_ = 1;  // see WorkerSettings::nodes
  std::vector<BucketState> states_;
};

}  // namespace godwit
