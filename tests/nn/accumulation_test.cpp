// Gradient accumulation through a whole network: k micro-batches of b images equal one batch of k·b.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/ops/pooling/global_avg_pool.h"
#include "autograd/ops/relu.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/buckets/scheduler.h"
#include "engine/philox.h"
#include "nn/init.h"
#include "nn/layers.h"

namespace godwit {
namespace accumulation_test {

constexpr int64_t kImages = 12;

// Has no batch norm, because batch norm would use the statistics of a micro-batch.
struct Net : nn::Module {
  nn::Conv2d conv1{3, 8, 3, {.padding = 1}, DType::f64, /*bias=*/true}, conv2{8, 5, 3, {.stride = 2}, DType::f64};
  nn::Linear fc{5, 4, DType::f64};

  Net() {
    add("conv1", conv1);
    add("conv2", conv2);
    add("fc", fc);
    nn::initialize(*this, 7);
  }
  Var forward(const Tensor& images) const {
    return fc(ops::global_avg_pool(ops::relu(conv2(ops::relu(conv1(Var(images)))))));
  }
};

struct Batch {
  Tensor images{{kImages, 7, 7, 3}, DType::f64}, labels{{kImages}, DType::i32};

  Batch() {
    RandomStream random(1, Purpose::test, 0);
    for (double& x : images.span<double>()) x = random.normal();
    for (int32_t& label : labels.span<int32_t>()) label = static_cast<int32_t>(random.below(4));
  }
};

// The gradients of the mean loss over all images, accumulated over k micro-batches.
std::vector<double> gradients(int k) {
  const Batch batch;
  const Net net;
  Buckets buckets(net.parameters(), {.first_bytes = 1000, .bytes = 1000});
  std::vector<double> result;
  Scheduler scheduler(buckets, [&](Bucket& bucket) {
    for (int64_t i = 0; i < bucket.numel; ++i) result.push_back(bucket.grad.item(i));
  });
  scheduler.begin_step(k);
  for (int i = 0; i < k; ++i) {
    const int64_t begin = kImages / k * i, count = kImages / k;
    scheduler.backward(ops::softmax_cross_entropy(net.forward(batch.images.rows(begin, count).clone()),
                                                  batch.labels.rows(begin, count).clone()));
  }
  scheduler.finish_step();
  return result;
}

// A weight's gradient sums at most n = 12 · 49 terms; the order differs, and the scaling by 1/k comes before or after.
// Either sum has an error of about n·2⁻⁵³ = 7e-14 times the sum of the terms' magnitudes, which is a few times the
// largest gradient.
TEST(Accumulation, MicroBatchesEqualOneBatch) {
  const std::vector<double> whole = gradients(1);
  double largest = 0;
  for (const double g : whole) largest = std::max(largest, std::abs(g));
  ASSERT_GT(largest, 0.01);
  for (const int k : {2, 3, 12}) {
    const std::vector<double> parts = gradients(k);
    ASSERT_EQ(parts.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], 1e-12 * largest) << k << " micro-batches";
  }
}

}  // namespace accumulation_test
}  // namespace godwit
