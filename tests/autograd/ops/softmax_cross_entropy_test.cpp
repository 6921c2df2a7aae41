#include "autograd/ops/softmax_cross_entropy.h"

#include <limits>

#include "autograd/ops/add.h"
#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace softmax_cross_entropy_test {

using test::check_gradients, test::expect_same_bits_everywhere, test::random_tensor, test::values;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Tensor random_labels(int64_t n, int64_t classes) {
  RandomStream random(7, Purpose::test);
  Tensor labels({n}, DType::i32);
  for (int32_t& label : labels.span<int32_t>())
    label = static_cast<int32_t>(random.below(static_cast<uint32_t>(classes)));
  return labels;
}

// The definition, without subtracting the largest logit.
double oracle(const Tensor& logits, const Tensor& labels, double smoothing) {
  const int64_t n = logits.dim(0), classes = logits.dim(1);
  double loss = 0;
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(logits.item(i * classes + c));
    for (int64_t c = 0; c < classes; ++c) {
      const double target = (c == labels.item(i) ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
      loss -= target * (logits.item(i * classes + c) - std::log(sum)) / static_cast<double>(n);
    }
  }
  return loss;
}

std::string message(const Tensor& logits, const Tensor& labels, double smoothing = 0) {
  return error_of([&] { ops::softmax_cross_entropy(Var(logits), labels, smoothing); });
}

TEST(SoftmaxCrossEntropy, Gradients) {
  for (const auto& [n, classes] : {std::pair{1, 1}, {1, 3}, {5, 17}, {3, 64}})
    for (double smoothing : {0.0, 0.1, 1.0})
      check_gradients(
          [&, n = n, classes = classes](const auto& in) {
            return ops::softmax_cross_entropy(in[0], random_labels(n, classes), smoothing);
          },
          {random_tensor({n, classes}, DType::f64, 3, 2)});
}

TEST(SoftmaxCrossEntropy, EqualsTheDefinition) {
  for (double smoothing : {0.0, 0.1, 1.0}) {
    const Tensor logits = random_tensor({37, 101}, DType::f64, 5, 3), labels = random_labels(37, 101);
    const double expected = oracle(logits, labels, smoothing);
    EXPECT_NEAR(ops::softmax_cross_entropy(Var(logits), labels, smoothing).value().item(), expected, 1e-12 * expected);
    Var x(logits.to(DType::f32), true), exact(logits, true);
    const Var loss = ops::softmax_cross_entropy(x, labels, smoothing);
    EXPECT_NEAR(loss.value().item(), expected, 4e-7 * expected) << "a few float32 roundings, also of the logits";
    backward(loss);
    backward(ops::softmax_cross_entropy(exact, labels, smoothing));
    for (int64_t i = 0; i < logits.numel(); ++i)  // probabilities / n; exponents of up to 20 are rounded to float32
      ASSERT_NEAR(x.grad().item(i), exact.grad().item(i), 20 * 1.2e-7 / 37);
  }
}

TEST(SoftmaxCrossEntropy, HugeLogits) {
  const Tensor logits = Tensor::of<float>({3e38f, -3e38f, 1e4f, 1e4f, -kInfinity, 0}, {3, 2});
  Var x(logits, true);
  const Var loss = ops::softmax_cross_entropy(x, Tensor::of<int32_t>({0, 1, 1}, {3}));
  EXPECT_NEAR(loss.value().item(), std::log(2) / 3, 1e-7);
  backward(loss);
  const std::vector<float> expected{0, 0, 1.f / 6, -1.f / 6, 0, 0};
  for (int64_t i = 0; i < 6; ++i) EXPECT_NEAR(x.grad().item(i), expected[static_cast<size_t>(i)], 1e-7);
}

// Sums are computed in pieces of 512 classes.
TEST(SoftmaxCrossEntropy, APieceOfInfiniteLogits) {
  const Tensor logits = Tensor::zeros({1, 1024});
  logits.range(0, 512).fill(-kInfinity);
  const Var loss = ops::softmax_cross_entropy(Var(logits), Tensor::of<int32_t>({700}, {1}));
  EXPECT_NEAR(loss.value().item(), std::log(512), 1e-6);
}

TEST(SoftmaxCrossEntropy, NaNPropagatesToTheLoss) {
  const Tensor labels = Tensor::of<int32_t>({0}, {1});
  for (const auto& bad : {std::vector<float>{1, kNaN, 2}, {kNaN, kNaN, kNaN}, {kInfinity, 1, 2}})
    EXPECT_TRUE(std::isnan(ops::softmax_cross_entropy(Var(Tensor::of(bad, {1, 3})), labels).value().item()));
}

TEST(SoftmaxCrossEntropy, GradientsWithIgnoredLabels) {
  for (const int32_t ignore : {-100, 2})
    for (const double smoothing : {0.0, 0.1})
      check_gradients(
          [&](const auto& in) {
            const Tensor labels = Tensor::of<int32_t>({1, ignore, 4, ignore, 0}, {5});
            return ops::softmax_cross_entropy(in[0], labels, smoothing, ignore);
          },
          {random_tensor({5, 5}, DType::f64, 3, 2)});
}

TEST(SoftmaxCrossEntropy, IgnoredRowsHaveNoEffect) {
  const Tensor logits = random_tensor({6, 41}, DType::f32), labels = Tensor::of<int32_t>({-1, 3, -1, 40, 0, -1}, {6});
  std::fill_n(logits.data<float>(), 41, kNaN);  // must not be read
  const Var x(logits, true), kept(Tensor({3, 41}), true);
  for (int64_t row = 0; const int64_t from : {1, 3, 4}) kept.value().rows(row++, 1).copy_from(logits.rows(from, 1));
  const Var loss = ops::softmax_cross_entropy(x, labels, 0.1, -1);
  const Var expected = ops::softmax_cross_entropy(kept, Tensor::of<int32_t>({3, 40, 0}, {3}), 0.1);
  EXPECT_EQ(loss.value().item(), expected.value().item());
  backward(loss);
  backward(expected);
  for (int64_t row = 0; const int64_t from : {1, 3, 4})
    EXPECT_EQ(values(x.grad().rows(from, 1)), values(kept.grad().rows(row++, 1)));
  for (const int64_t from : {0, 2, 5}) EXPECT_EQ(values(x.grad().rows(from, 1)), std::vector<double>(41));
}

TEST(SoftmaxCrossEntropy, NoCountedLabelsGiveZero) {
  const Var x(random_tensor({3, 7}, DType::f32), true);
  const Var loss = ops::softmax_cross_entropy(x, Tensor::full({3}, -100, DType::i32), 0, -100);
  EXPECT_EQ(loss.value().item(), 0);
  backward(loss);
  EXPECT_EQ(values(x.grad()), std::vector<double>(21));
}

// Logits are overwritten only if nothing except the loss holds them.
TEST(SoftmaxCrossEntropy, SharedLogitsAreNotOverwritten) {
  const Tensor labels = random_labels(4, 9);
  auto gradient = [&](bool keep) {
    const Var x(random_tensor({4, 9}, DType::f32), true);
    Var doubled = ops::add(x, x);
    const Tensor before = doubled.value().clone();
    const Var loss = ops::softmax_cross_entropy(doubled, labels);
    if (!keep) doubled = Var();
    backward(loss);
    if (keep) {
      EXPECT_EQ(values(doubled.value()), values(before));
    }
    return values(x.grad());
  };
  EXPECT_EQ(gradient(true), gradient(false));
}

// BERT's vocabulary: a sum of 30,522 exponentials, whose pieces are summed in float32.
TEST(SoftmaxCrossEntropy, ManyClasses) {
  const Tensor logits = random_tensor({3, 30522}, DType::f64, 5, 3), labels = random_labels(3, 30522);
  const double expected = oracle(logits, labels, 0);
  EXPECT_NEAR(ops::softmax_cross_entropy(Var(logits.to(DType::f32)), labels).value().item(), expected, 4e-7 * expected);
}

TEST(SoftmaxCrossEntropy, SameBitsOnAnyThreadCount) {
  const Tensor logits = random_tensor({61, 1003}, DType::f32), labels = random_labels(61, 1003);
  auto run = [&] {
    Var x(logits, true);
    const Var loss = ops::softmax_cross_entropy(x, labels, 0.1);
    backward(loss);
    return std::pair{loss.value().item(), values(x.grad())};
  };
  expect_same_bits_everywhere(run, {2});
}

TEST(SoftmaxCrossEntropy, NamesInvalidArguments) {
  const Tensor logits = Tensor::zeros({3, 10});
  EXPECT_EQ(message(logits, Tensor::of<int32_t>({1, 10, 2}, {3})),
            "softmax_cross_entropy: label 1 is 10, there are 10 classes");
  EXPECT_EQ(message(logits, Tensor::of<int32_t>({1, 2, -1}, {3})),
            "softmax_cross_entropy: label 2 is -1, there are 10 classes");
  EXPECT_EQ(message(logits, Tensor::zeros({4}, DType::i32)),
            "softmax_cross_entropy: labels must be int32 [3], got int32 [4]");
  EXPECT_EQ(message(logits, Tensor::zeros({3}, DType::i64)),
            "softmax_cross_entropy: labels must be int32 [3], got int64 [3]");
  EXPECT_EQ(message(Tensor::zeros({3}), Tensor::zeros({3}, DType::i32)),
            "softmax_cross_entropy: logits must be [n, classes], got [3]");
  EXPECT_EQ(message(Tensor::zeros({0, 10}), Tensor::zeros({0}, DType::i32)),
            "softmax_cross_entropy: the batch is empty, logits are [0, 10]");
  for (double smoothing : {-0.1, 1.5, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_NE(message(logits, Tensor::zeros({3}, DType::i32), smoothing).find("must be in [0, 1]"), std::string::npos);
}

TEST(TopKCorrect, BreaksTiesByClassAndNeverCountsNaN) {
  auto hits = [](const std::vector<float>& row, int32_t label, int k) {
    const auto classes = static_cast<int64_t>(row.size());
    return ops::top_k_correct(Tensor::of(row, {1, classes}), Tensor::of<int32_t>({label}, {1}), k).item();
  };
  EXPECT_EQ(hits({1, 3, 2}, 1, 1), 1);
  EXPECT_EQ(hits({1, 3, 2}, 2, 1), 0);
  EXPECT_EQ(hits({1, 3, 2}, 2, 2), 1);
  EXPECT_EQ(hits({5, 5, 5}, 0, 1), 1) << "ties go to the lower class";
  EXPECT_EQ(hits({5, 5, 5}, 1, 1), 0);
  EXPECT_EQ(hits({5, 5, 5}, 1, 2), 1);
  EXPECT_EQ(hits({kNaN, kNaN, kNaN}, 0, 5), 0);
  EXPECT_EQ(hits({kNaN, 1, 0}, 1, 1), 0) << "NaN ranks first";
  EXPECT_EQ(hits({kNaN, 1, 0}, 1, 2), 1);
  EXPECT_EQ(hits({1, 2}, 0, 7), 1) << "k exceeds the number of classes";
  EXPECT_EQ(ops::top_k_correct(Tensor::of<double>({1, 2, 2, 1}, {2, 2}), Tensor::of<int32_t>({1, 1}, {2}), 1).item(),
            1);
  EXPECT_EQ(ops::top_k_correct(Tensor::zeros({0, 3}), Tensor::zeros({0}, DType::i32), 1).item(), 0);
  EXPECT_THROW(hits({1, 2}, 0, 0), Error);
  EXPECT_THROW(hits({1, 2}, 2, 1), Error);
}

}  // namespace softmax_cross_entropy_test
}  // namespace godwit
