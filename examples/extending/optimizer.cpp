// Lion (Chen et al. 2023): c = β1·m + (1−β1)ĝ;  x ← (1−αλ)x − α·sign(c);  m ← β2·m + (1−β2)ĝ.
#include <godwit/engine/update_each.h>
#include <godwit/optim/decay.h>
#include <godwit/optim/state.h>

#include "quadrants.h"

using namespace godwit;

class Lion : public Optimizer {
 public:
  struct Options {
    double lr = 1e-3, weight_decay = 0.01;
    bool decay_norm_and_bias = true;
    double beta1 = 0.9, beta2 = 0.99;

    void describe(OptionList& list) {
      describe_common(*this, list);
      list.add("beta1", beta1, "weight of the momentum in the update", kDecayRate);
      list.add("beta2", beta2, "decay rate of the momentum", kDecayRate);
    }
  };

  Lion(const Options& options, OptimizerInputs inputs)
      : Optimizer(std::move(inputs.exchange)), options_(options), m_(state_like(inputs.buckets, "m")) {}

  void apply(Bucket& bucket, const StepInfo& step) override {
    float *x = bucket.param.data<float>(), *m = state_ptr<float>(m_, bucket), *g = bucket.grad.data<float>();
    const float lr = float(step.lr), beta1 = float(options_.beta1), beta2 = float(options_.beta2);
    const auto update = [&](int64_t begin, int64_t end, double decay) {
      const float keep = 1 - lr * static_cast<float>(decay);
      const auto formula = [=](int64_t, float& x_i, float& m_i, float g_i) GODWIT_INLINE {
        const float c = beta1 * m_i + (1 - beta1) * g_i;
        x_i = keep * x_i - lr * static_cast<float>((c > 0) - (c < 0));
        m_i = beta2 * m_i + (1 - beta2) * g_i;
      };
      update_each(Cpu{}, "lion", begin, end, formula, x, m, g);
    };
    for_decay_ranges(bucket, options_.weight_decay, options_.decay_norm_and_bias, update);
  }
  std::vector<StateTensor> state() const override { return m_; }

 private:
  Options options_;
  std::vector<StateTensor> m_;
};

const OptimizerMethod& lion_method() {
  static const OptimizerMethod method{.name = "lion", .help = "signs of an interpolated momentum",
      .paper = "Chen et al. 2023, Symbolic Discovery of Optimization Algorithms", .bytes = "traffic of its exchange",
      .defaults = Lion::Options(), .make = [](const AnyOptions& options, OptimizerInputs inputs) -> std::unique_ptr<Optimizer> {
        return std::make_unique<Lion>(options.as<Lion::Options>(), std::move(inputs));
      }};
  return method;
}

int main() {
  methods<OptimizerMethod>().push_back(&lion_method());  // in Godwit's sources: METHOD(lion) in optim/methods.cpp
  quadrants::train("lion", {.optimizer = {"lion", R"({"lr": 0.005})"}, .exchange = "ef_signsgd"});
}
