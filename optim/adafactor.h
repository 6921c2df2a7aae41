// Adafactor (Shazeer and Stern 2018): stores the second moments of a matrix as one mean per row and one per column.
#pragma once
#include "optim/kernels/adafactor_kernels.h"
#include "optim/method.h"

namespace godwit {

// A parameter with two or more dimensions is a matrix [first dimension, rest]. For the mean gradient ĝ, with β2 = 1 −
// t^−decay_exponent and g² = ĝ² + ε:
//   r ← β2·r + (1−β2)·row means of g²;  c ← β2·c + (1−β2)·column means of g²;  v = r·cᵀ/mean(r);
//   u = ĝ/√v;  u ← u/max(1, RMS(u)/clip_update);  x ← (1−lr·λ)x − α·u;
//   α = lr·max(0.001, RMS(x)) if `relative`, otherwise lr.
// For a vector, v is stored completely: v ← β2·v + (1−β2)·g². There is no momentum. Types: float32 or float64. Sums are
// in float64 and in a fixed order, so results are bit-exact for any bucket size and thread count. Under sharding, each
// parameter has one owner.
class Adafactor : public Optimizer {
 public:
  struct Options {
    double lr = 0.01;
    double weight_decay = 0;
    bool decay_norm_and_bias = true;
    double eps = 1e-30;           // added to squared gradients
    double decay_exponent = 0.8;  // c in β2 = 1 − t^−c
    double clip_update = 1;       // limit of the root mean square of u
    bool relative = true;         // multiply lr by the root mean square of the parameter
    void describe(OptionList& list);
  };
  Adafactor(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange);
  void apply(Bucket& bucket, const StepInfo& step) override;
  // "v_row" and "v_column" for matrices, "v" for vectors. Each begins at its parameter's offset.
  std::vector<StateTensor> state() const override;

 private:
  Options options_;
  std::vector<adafactor::Matrices> matrices_;  // by bucket
  std::vector<StateTensor> state_;
};

}  // namespace godwit
