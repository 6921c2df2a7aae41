#include "autograd/ops/dropout.h"

#include <hwy/targets.h>

#include "autograd/ops/add.h"
#include "engine/philox.h"
#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace dropout_test {

using test::check_gradients, test::random_tensor, test::values, test::with_threads;

const DropoutKey kKey{uint64_t{7} << 32 | 42, 3, 5, 2};

// U of element e, computed by the scalar function.
float unit(const DropoutKey& key, int64_t e) {
  return to_unit(random_word(key.seed, e, key.step, static_cast<Purpose>(key.purpose()), key.sender));
}

TEST(Dropout, Gradients) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{17}, Shape{3, 5}})
    for (const double p : {0.0, 0.1, 0.5, 0.99})
      check_gradients([=](const auto& in) { return ops::add(ops::dropout(in[0], p, kKey), in[1]); },
                      {random_tensor(shape), random_tensor(shape, DType::f64, 2)});
}

TEST(Dropout, DropsElementsWhoseRandomNumberIsBelowP) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (const int64_t n : {0, 1, 3, 4, 5, 1023, 1024, 1025, 4099})
      for (const double p : {1e-9, 0.1, 0.5, 1 - 0x1p-25}) {
        const Tensor x = random_tensor({n}).to(dtype), y = ops::dropout(Var(x), p, kKey).value();
        for (int64_t e = 0; e < n; ++e) {
          const double scale = dtype == DType::f64 ? 1 / (1 - p) : static_cast<double>(static_cast<float>(1 / (1 - p)));
          const double kept = unit(kKey, e) < p ? 0 : x.item(e) * scale;
          ASSERT_EQ(y.item(e), Tensor::full({1}, kept, DType::f64).to(dtype).item()) << dtype << " " << n << " " << e;
        }
      }
}

// The standard deviation of the dropped fraction is sqrt(p(1 - p) / n); tolerance of five of them.
TEST(Dropout, DropsTheRequestedFraction) {
  const Tensor x = Tensor::full({200000}, 1);
  for (const double p : {0.1, 0.5, 0.9}) {
    const Tensor y = ops::dropout(Var(x), p, kKey).value();
    double zeros = 0, sum = 0;
    for (const float value : y.span<float>()) zeros += value == 0, sum += static_cast<double>(value);
    EXPECT_NEAR(zeros / 200000, p, 5 * std::sqrt(p * (1 - p) / 200000));
    EXPECT_NEAR(sum / 200000, 1, 5 * std::sqrt(p / (1 - p) / 200000));
  }
}

TEST(Dropout, EveryPartOfTheKeyChangesTheMask) {
  const Tensor x = Tensor::full({256}, 1);
  auto zeros = [&](const DropoutKey& key) { return ops::dropout(Var(x), 0.5, key).value().to_vector<float>(); };
  std::vector<std::vector<float>> all{zeros(kKey)};
  for (int part = 0; part < 5; ++part) {
    DropoutKey key = kKey;
    if (part == 0) key.seed += 1;
    if (part == 1) key.seed += uint64_t{1} << 32;
    if (part == 2) key.step += 1;
    if (part == 3) key.site += 1;
    if (part == 4) key.sender += 1;
    all.push_back(zeros(key));
  }
  for (size_t a = 0; a < all.size(); ++a)
    for (size_t b = 0; b < a; ++b) EXPECT_NE(all[a], all[b]) << a << " " << b;
  EXPECT_EQ(zeros(kKey), all[0]);
}

TEST(Dropout, SameBitsOnAnyThreadCountAndInstructionSet) {
  const Tensor x = random_tensor({70003}, DType::f32);
  auto run = [&] { return values(ops::dropout(Var(x), 0.1, kKey).value()); };
  const auto expected = with_threads(1, run);
  for (const int threads : {2, 3, 4}) EXPECT_EQ(with_threads(threads, run), expected) << threads;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    EXPECT_EQ(run(), expected) << hwy::TargetName(target);
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(Dropout, ZeroProbabilityReturnsX) {
  const Var x(Tensor::zeros({3}));
  EXPECT_TRUE(ops::dropout(x, 0, kKey) == x);
}

TEST(Dropout, NamesInvalidArguments) {
  const Var x(Tensor::zeros({3}));
  EXPECT_EQ(error_of([&] { ops::dropout(x, 1, kKey); }), "dropout: the probability must be in [0, 1), got 1");
  EXPECT_EQ(error_of([&] { ops::dropout(x, -0.5, kKey); }), "dropout: the probability must be in [0, 1), got -0.5");
  EXPECT_THROW(ops::dropout(x, std::nan(""), kKey), Error);
  DropoutKey key = kKey;
  key.site = 1 << 24;
  EXPECT_EQ(error_of([&] { ops::dropout(x, 0.5, key); }), "dropout: the site must be below 2^24, got 16777216");
  EXPECT_THROW(ops::dropout(Var(Tensor::zeros({2}, DType::i32)), 0.5, kKey), Error);
}

}  // namespace dropout_test
}  // namespace godwit
