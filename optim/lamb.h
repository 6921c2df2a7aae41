// LAMB (You et al. 2020): Adam with a trust ratio per parameter.
#pragma once
#include <algorithm>
#include <cmath>

#include "optim/adam.h"

namespace godwit {

// The unscaled step r, which is written to the gradient.
template <class T>
struct LambUpdate {
  MomentsUpdate<T> moments;
  T correction, decay;  // 1 − β1ᵗ or 1; λ
  GODWIT_INLINE void operator()(int64_t, T& g, T& m, T& v, T x) const {
    const T root = moments(m, v, g);
    g = m / correction / root + decay * x;
  }
};

// x ← x − rate·r
template <class T>
struct SubtractScaled {
  T rate;
  GODWIT_INLINE void operator()(int64_t, T& x, T r) const { x = x - rate * r; }
};

// c of a parameter from ‖x‖² and ‖r‖²:  c̄ ← β3·c̄ + (1−β3)·c;  rate ← α·c
template <class T>
struct LambCoefficient {
  double lr, low, high;  // α; limits of c
  float beta, o;         // β3, 1 − β3
  // of_x, of_r: ‖x‖² and ‖r‖²
  GODWIT_INLINE void operator()(float& mean, T& rate, double of_x, double of_r) const {
    const double c = of_x > 0 && of_r > 0 ? std::min(std::max(std::sqrt(of_x) / std::sqrt(of_r), low), high) : 1;
    mean = beta * mean + o * static_cast<float>(c);
    rate = static_cast<T>(lr * c);
  }
};

// LAMB's step for a bucket.
template <class T>
struct LambStep {
  LambUpdate<T> update;            // of parameters with weight decay
  LambCoefficient<T> coefficient;  // computes c̄ and the rates
  T *g, *m, *v, *x;                // gradient, moments, parameters
  float* mean;                     // c̄ of each parameter
  // The update of parameters with or without weight decay.
  GODWIT_INLINE LambUpdate<T> update_of(bool decays) const {
    return {update.moments, update.correction, decays ? update.decay : 0};
  }
};

// The owned elements of a bucket's parameters as consecutive ranges. The ranges of other ranks' parameters are empty.
struct ParameterRanges {
  // Takes the owned elements of the bucket's slots. `config` has weight_decay and decay_norm_and_bias.
  template <class Config>
  ParameterRanges(const Bucket& bucket, const Config& config)
      : ParameterRanges(bucket, config.weight_decay > 0, config.decay_norm_and_bias) {}
  ParameterRanges(const Bucket& bucket, bool decay, bool decay_norm_and_bias);
  std::vector<Segment> ranges;                                       // one range for each slot
  std::vector<bool> decays;                                          // whether weight decay applies, for each slot
  bool empty() const { return ranges.empty() || begin() == end(); }  // whether no element is owned
  int64_t begin() const { return ranges.front().begin; }             // first owned element
  int64_t end() const { return ranges.back().end; }                  // end of the owned elements
};

// Updates a bucket's moments, c̄ and parameters, and replaces g by r. x and g are the arrays of `bucket`.
template <class T>
void lamb_update(Cpu device, const LambStep<T>& step, const Bucket& bucket, const ParameterRanges& parameters);
template <class T>
void lamb_update(Cuda device, const LambStep<T>& step, const Bucket& bucket, const ParameterRanges& parameters);

// For the mean gradient ĝ:  m ← β1·m + (1−β1)ĝ;  v ← β2·v + (1−β2)ĝ²;  for each parameter
//   r = m̂/(√v̂ + ε) + λx;  c = ‖x‖/‖r‖;  x ← x − α·c·r.
// - c is clamped to [min_coeff, max_coeff], and 1 if either norm is 0.
// - With bias_correction, m̂ and v̂ have Adam's bias correction; otherwise they are m and v.
// Types: float32 or float64. Norms are over whole parameters, so a rank must own all of a parameter or none of it.
class Lamb : public Optimizer {
 public:
  struct Options {
    double lr = 0.01;
    double weight_decay = 0.01;
    bool decay_norm_and_bias = true;
    double beta1 = 0.9, beta2 = 0.999;
    double eps = 1e-6;
    bool bias_correction = true;              // divide both moments by 1 − βᵗ
    double min_coeff = 0.01, max_coeff = 10;  // limits of c
    void describe(OptionList& list);
    void check() const;
  };
  // coeff_beta: β3 of the moving average c̄ ← β3·c̄ + (1−β3)·c of each parameter, which 1-bit LAMB needs
  Lamb(const Options& options, const Buckets& buckets, std::unique_ptr<Exchange> exchange, double coeff_beta = 0);
  void apply(Bucket& bucket, const StepInfo& step) override;
  std::vector<StateTensor> state() const override;  // "m", "v"

  // c̄ of the bucket's parameters, float32 [slots]; at first 0. Undefined for parameters that this rank does not own.
  const Tensor& mean_coefficients(const Bucket& bucket) const;

 private:
  template <class T, class Where>
  void apply_on(Where device, Bucket& bucket, const StepInfo& step);

  Options options_;
  std::vector<StateTensor> m_, v_;
  std::vector<Tensor> mean_coefficients_;
  float coeff_beta_;
};

// Adds the options min_coeff and max_coeff.
template <class Options>
void describe_coefficients(Options& o, OptionList& list) {
  list.add("min_coeff", o.min_coeff, "smallest ratio of the norms of a parameter and of its update", kNotNegative);
  list.add("max_coeff", o.max_coeff, "largest ratio of the norms of a parameter and of its update", kPositive);
}
// Throws if min_coeff is above max_coeff.
void check_coefficients(const std::string& name, double min_coeff, double max_coeff);

}  // namespace godwit
