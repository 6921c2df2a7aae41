#include "autograd/leaf.h"
#include "autograd/ops/linear_cross_entropy.h"

#include <gmock/gmock.h>

#include <tuple>

#include "autograd/ops/add.h"
#include "autograd/ops/cast.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "engine/context.h"
#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace linear_cross_entropy_test {

using ::testing::HasSubstr, test::check_gradients, test::random_tensor, test::values;

constexpr int64_t kMany = 30011;                   // classes; with 90 rows, the logits are computed in parts
constexpr int64_t kManyRows = 2051, kSome = 1031;  // rows and classes with which the forward pass computes gradients

// Labels of every part of the classes; each seventh is -1 if `ignored`.
Tensor labels_of(int64_t n, int64_t classes, bool ignored) {
  Tensor labels({n}, DType::i32, kCpu);
  for (int64_t i = 0; i < n; ++i)
    labels.data<int32_t>()[i] = ignored && i % 7 == 3 ? -1 : static_cast<int32_t>(i * 7919 % classes);
  return labels;
}

struct Results {
  double loss;
  std::vector<double> dx, dw;
};

template <class F>
Results run(const Tensor& x, const Tensor& w, const F& f) {
  const Var vx(x, true), vw(w, true);
  const Var loss = f(vx, vw);
  backward(loss, 0.5);
  return {loss.value().item(), values(vx.grad()), values(vw.grad())};
}

TEST(LinearCrossEntropy, FewClassesGradients) {
  const Tensor labels = labels_of(5, 7, true);
  check_gradients([&](const auto& in) { return ops::linear_cross_entropy(in[0], in[1], labels, -1); },
                  {random_tensor({5, 3}, DType::f64, 1), random_tensor({7, 3}, DType::f64, 2)});
}

// Central differences of directions: one for all of x, one for all of w.
TEST(LinearCrossEntropy, GradientsInParts) {
  constexpr int64_t n = 90, width = 3;
  const Tensor labels = labels_of(n, kMany, true);
  const Tensor x = random_tensor({n, width}, DType::f64, 1), w = random_tensor({kMany, width}, DType::f64, 2);
  const Tensor along_x = random_tensor({n, width}, DType::f64, 3),
               along_w = random_tensor({kMany, width}, DType::f64, 4);
  const auto loss_at = [&](double t) {
    const auto moved = [t](const Tensor& from, const Tensor& along) {
      const Tensor to = from.clone();
      for (int64_t i = 0; i < to.numel(); ++i) to.data<double>()[i] += t * along.data<double>()[i];
      return Var(to);
    };
    return std::pair{ops::linear_cross_entropy(moved(x, along_x), Var(w), labels, -1).value().item(),
                     ops::linear_cross_entropy(Var(x), moved(w, along_w), labels, -1).value().item()};
  };
  const Results found =
      run(x, w, [&](const Var& a, const Var& b) { return ops::linear_cross_entropy(a, b, labels, -1); });
  const auto dot = [](const std::vector<double>& g, const Tensor& along) {
    double sum = 0;
    for (size_t i = 0; i < g.size(); ++i) sum += g[i] * along.data<double>()[i];
    return 2 * sum;  // the gradients are of half of the loss
  };
  const double h = 0x1p-17;
  const auto [x_up, w_up] = loss_at(h);
  const auto [x_down, w_down] = loss_at(-h);
  EXPECT_NEAR(dot(found.dx, along_x), (x_up - x_down) / (2 * h), 1e-6);
  EXPECT_NEAR(dot(found.dw, along_w), (w_up - w_down) / (2 * h), 1e-6);
}

TEST(LinearCrossEntropy, PartsEqualTheWhole) {
  constexpr int64_t width = 20;
  for (const auto& [n, classes] : {std::pair(int64_t{90}, kMany), {kManyRows, kSome}})
    for (const bool ignored : {false, true})
      for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
        const DType wide = compute_dtype(dtype);
        const Tensor x = random_tensor({n, width}, DType::f32, 1).to(dtype);
        const Tensor w = random_tensor({classes, width}, DType::f32, 2, 0.2).to(wide),
                     labels = labels_of(n, classes, ignored);
        const auto ignore = ignored ? std::optional<int32_t>(-1) : std::nullopt;
        const Results parts =
            run(x, w, [&](const Var& a, const Var& b) { return ops::linear_cross_entropy(a, b, labels, ignore); });
        const Results whole = run(x, w, [&](const Var& a, const Var& b) {
          return ops::softmax_cross_entropy(ops::cast(ops::linear(a, b), wide), labels, 0, ignore);
        });
        // Gradients are at most 1/n. In float32, the order of a sum of n products depends on the caches of the processor
        // (Eigen). bfloat16 rounds logits of order 10 and the gradients of x in each of 14 parts.
        const double tolerance = dtype == DType::f64 ? 1e-14 : dtype == DType::f32 ? (n > 90 ? 1e-5 : 1e-6) : 2e-2;
        EXPECT_NEAR(parts.loss, whole.loss, 10 * tolerance);
        for (size_t i = 0; i < whole.dx.size(); ++i) ASSERT_NEAR(parts.dx[i], whole.dx[i], tolerance / n) << dtype << i;
        for (size_t i = 0; i < whole.dw.size(); ++i) ASSERT_NEAR(parts.dw[i], whole.dw[i], tolerance / n) << dtype << i;
      }
}

TEST(LinearCrossEntropy, PeakMemoryIsBelowAFifthOfTheLogits) {
  constexpr int64_t width = 8;
  for (const auto& [dtype, n, classes] : {std::tuple(DType::f32, int64_t{257}, kMany),
                                          {DType::bf16, 257, kMany},
                                          {DType::f32, 640, kMany},
                                          {DType::bf16, 640, kMany},
                                          {DType::f32, kManyRows, 2 * kSome},
                                          {DType::bf16, kManyRows, 2 * kSome}}) {
    const Var x(random_tensor({n, width}, DType::f32, 1).to(dtype), true),
        w(random_tensor({classes, width}, DType::f32, 2), true);
    const Tensor labels = labels_of(n, classes, false);
    Leaf(w).rebind(w.value(), Tensor({classes, width}, DType::f32, kCpu));  // the gradient's memory, as in a bucket
    Pool& pool = *context().pool;
    pool.reset_peak();
    const int64_t before = pool.stats().bytes_in_use;
    backward(ops::linear_cross_entropy(x, w, labels));
    EXPECT_LT(pool.stats().peak_bytes_in_use - before, n * classes * 4 / 5) << dtype << " " << n;
  }
}

// The forward pass computes gradients into the bound memory of w, from which other contributions move them.
TEST(LinearCrossEntropy, GradientsOfTheForwardPassAddToOthers) {
  constexpr int64_t width = 4;
  const Tensor x = random_tensor({kManyRows, width}, DType::f64, 1), w = random_tensor({kSome, width}, DType::f64, 2);
  const Tensor labels = labels_of(kManyRows, kSome, true);
  const auto loss_of = [&](const Var& vx, const Var& vw) { return ops::linear_cross_entropy(vx, vw, labels, -1); };
  const std::vector<double> once = run(x, w, loss_of).dw;  // of half of the loss
  const auto expect = [&](const Var& vw, double factor) {
    const std::vector<double> found = values(vw.grad());
    for (size_t i = 0; i < once.size(); ++i) ASSERT_NEAR(found[i], factor * once[i], 1e-15 * factor) << i;
  };
  for (const bool bound : {false, true}) {
    const Var vx(x, true), vw(w, true);
    const Tensor memory = Tensor::zeros({kSome, width}, DType::f64);
    if (bound) Leaf(vw).rebind(w, memory);
    backward(loss_of(vx, vw));
    expect(vw, 2);
    backward(loss_of(vx, vw), 0.5);  // a second micro-batch
    expect(vw, 3);
    vw.clear_grad();
    {
      const Var dropped = loss_of(vx, vw);  // no backward pass
      vw.clear_grad();
      backward(loss_of(vx, vw), 0.5);
      expect(vw, 1);
    }
    vw.clear_grad();
    backward(ops::add(loss_of(vx, vw), loss_of(vx, vw)), 0.5);
    expect(vw, 2);
    vw.clear_grad();
    const Var first = loss_of(vx, vw), second = loss_of(vx, vw);
    backward(second, 0.5);  // this gradient arrives before the one that has the memory
    backward(first);
    expect(vw, 3);
    vw.clear_grad();
    const Var early = loss_of(vx, vw);
    backward(ops::softmax_cross_entropy(ops::linear(Var(x), vw), labels, 0, -1), 0.5);
    backward(early, 0.5);
    expect(vw, 2);
    vw.clear_grad();
    const Var before = loss_of(vx, vw);
    Leaf(vw).move_early_gradient();
    if (bound) memory.zero();  // as the scheduler does for an unused parameter
    backward(before, 0.5);
    expect(vw, 1);
    EXPECT_EQ(vw.grad().same_buffer(memory), bound);
    vw.clear_grad();
    const Var other = loss_of(vx, vw);
    if (bound) Leaf(vw).rebind(w, memory);
    backward(loss_of(vx, vw), 0.5);
    backward(other);
    expect(vw, 3);
  }
}

TEST(LinearCrossEntropy, OnlyOneInputMayNeedAGradient) {
  const Tensor x = random_tensor({90, 4}, DType::f32, 1), w = random_tensor({kMany, 4}, DType::f32, 2);
  const Tensor labels = labels_of(90, kMany, false);
  const Results both = run(x, w, [&](const Var& a, const Var& b) { return ops::linear_cross_entropy(a, b, labels); });
  const Var vx(x, true), vw(w, true);
  backward(ops::linear_cross_entropy(vx, Var(w), labels), 0.5);
  backward(ops::linear_cross_entropy(Var(x), vw, labels), 0.5);
  EXPECT_EQ(values(vx.grad()), both.dx);
  EXPECT_EQ(values(vw.grad()), both.dw);
}

TEST(LinearCrossEntropy, NamesInvalidArguments) {
  const Var x(Tensor::zeros({90, 4})), w(Tensor::zeros({kMany, 4}));
  const auto message = [&](const Var& b, const Tensor& labels) {
    return error_of([&] { ops::linear_cross_entropy(x, b, labels); });
  };
  Tensor labels = labels_of(90, kMany, false);
  EXPECT_THAT(message(Var(Tensor::zeros({kMany, 5})), labels), HasSubstr("x must be [n, width]"));
  EXPECT_THAT(message(Var(Tensor::zeros({kMany, 4}, DType::f64)), labels), HasSubstr("the weight must be float32"));
  EXPECT_THAT(message(w, labels_of(89, kMany, false)), HasSubstr("labels must be int32 [90]"));
  labels.data<int32_t>()[3] = kMany;
  EXPECT_EQ(message(w, labels), "linear_cross_entropy: label 3 is 30011, there are 30011 classes");
}

}  // namespace linear_cross_entropy_test
}  // namespace godwit
