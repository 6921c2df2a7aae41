// Small nets for tests of sharded parameters.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "autograd/ops/cast.h"
#include "autograd/ops/embedding.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/relu.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/host_tensor.h"
#include "engine/philox.h"
#include "nn/init.h"
#include "nn/layers.h"

namespace godwit::test {

inline constexpr int64_t kWidth = 64, kLayers = 8;
inline constexpr int32_t kRows = 4;                      // rows of a batch
inline constexpr int64_t kWeight = kWidth * kWidth * 4;  // bytes

// Layers of one matrix and one bias each. With `tied`, the first matrix is also the last one. With `recompute`, pairs
// of layers keep only their input. `type`: type of the activations.
struct Layers {
  std::vector<Var> weights, biases;
  bool tied = false, recompute = false;
  DType type = DType::f32;

  explicit Layers(bool is_tied = false, bool is_recomputed = false, DType of_activations = DType::f32)
      : tied(is_tied), recompute(is_recomputed), type(of_activations) {
    for (int64_t i = 0; i < kLayers; ++i) {
      std::vector<float> w;
      for (int64_t k = 0; k < kWidth * kWidth; ++k)
        w.push_back(0.2f * (to_unit(random_word(5, k, static_cast<uint32_t>(i), Purpose::test, 0)) - 0.5f));
      weights.emplace_back(Tensor::of(w, {kWidth, kWidth}), true);
      biases.emplace_back(Tensor::zeros({kWidth}), true);
    }
  }
  std::vector<Parameter> parameters() const {
    std::vector<Parameter> all;
    for (size_t i = 0; i < weights.size(); ++i) {
      all.push_back({"w" + std::to_string(i), weights[i], true});
      all.push_back({"b" + std::to_string(i), biases[i], false});
    }
    return all;
  }
  Var loss(int rank, int64_t step) const {
    std::vector<int32_t> ids, labels;
    for (int32_t i = 0; i < kRows; ++i) {
      ids.push_back((7 * i + 3 * rank + static_cast<int32_t>(step)) % kWidth);
      labels.push_back((5 * i + rank) % kWidth);
    }
    Var x = ops::cast(ops::embedding(cpu_tensor(ids), weights[0]), type);
    const auto layer = [this](const Var& in, size_t i) { return ops::linear(ops::relu(in), weights[i], biases[i]); };
    for (size_t i = tied ? 1 : 0; i < weights.size(); ++i) {
      if (!recompute || i == 0 || i + 1 == weights.size()) {
        x = layer(x, i);
        continue;
      }
      x = godwit::recompute({x, weights[i], biases[i], weights[i + 1], biases[i + 1]},
                            [=] { return layer(layer(x, i), i + 1); });
      ++i;
    }
    if (tied) x = ops::linear(x, weights[0], biases[0]);
    return ops::softmax_cross_entropy(ops::cast(x, DType::f32), cpu_tensor(labels));
  }
};

// Buckets of one layer each, including the padding.
inline constexpr int64_t kPadded = 4224, kBucket = 4 * kPadded;
static_assert(kPadded >= kWidth * kWidth + kWidth && kPadded % 128 == 0);

struct Stack : nn::Module {
  std::vector<std::unique_ptr<nn::Linear>> layers;
  explicit Stack(uint64_t seed = 7) {
    for (int i = 0; i < 6; ++i) {
      layers.push_back(std::make_unique<nn::Linear>(100, 100));
      add("layer" + std::to_string(i), *layers.back());
    }
    nn::initialize(*this, seed);
  }
};

}  // namespace godwit::test
