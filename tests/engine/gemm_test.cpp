#include "engine/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "engine/context.h"
#include "engine/kernel_library.h"
#include "engine/philox.h"

namespace godwit {
namespace gemm_test {

template <class T>
std::vector<T> random_values(int64_t n, uint32_t name) {
  RandomStream random(7, Purpose::test, name);
  std::vector<T> values(static_cast<size_t>(n));
  for (T& value : values) value = static_cast<T>(random.normal());
  return values;
}

// One product. Each matrix row is stored with `slack` extra elements, which must not change.
template <class T>
struct Product {
  bool trans_a, trans_b;
  int64_t m, n, k, slack = 0;
  T alpha = 1, beta = 0;
  int64_t lda = (trans_a ? m : k) + slack, ldb = (trans_b ? k : n) + slack, ldc = n + slack;
  std::vector<T> a = random_values<T>((trans_a ? k : m) * lda, 1), b = random_values<T>((trans_b ? n : k) * ldb, 2);
  std::vector<T> before = random_values<T>(m * ldc, 3), c = before;

  const std::vector<T>& run() {
    gemm(Cpu{}, trans_a, trans_b, m, n, k, alpha, a.data(), lda, b.data(), ldb, beta, c.data(), ldc);
    return c;
  }

  // Largest error relative to the definition, in units of k · eps · Σ|a·b|, the bound for any order of summation.
  double worst() const {
    double worst = 0;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < ldc; ++j) {
        const auto at = static_cast<size_t>(i * ldc + j);
        if (j >= n) {
          if (c[at] != before[at]) return INFINITY;
          continue;
        }
        double sum = 0, size = 0;
        for (int64_t p = 0; p < k; ++p) {
          const double term = double{a[static_cast<size_t>(trans_a ? p * lda + i : i * lda + p)]} *
                              double{b[static_cast<size_t>(trans_b ? j * ldb + p : p * ldb + j)]};
          sum += term;
          size += std::abs(term);
        }
        const double old = beta == T{0} ? 0 : double{beta} * double{before[at]};
        const double bound = static_cast<double>(k + 4) * std::numeric_limits<T>::epsilon() *
                             (std::abs(double{alpha}) * size + std::abs(old) + 1e-30);
        const double error = std::abs(double{c[at]} - (double{alpha} * sum + old)) / bound;
        if (!(error <= worst)) worst = error;
      }
    return worst;
  }
};

template <class T>
class Gemm : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(Gemm, Reals);

TYPED_TEST(Gemm, AgreesWithTheDefinition) {
  for (int trans = 0; trans < 4; ++trans)
    for (int64_t slack : {0, 3})
      for (auto [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                             {1, 7, 5},
                             {5, 1, 9},
                             {3, 4, 0},
                             {17, 33, 65},
                             {64, 10, 64},
                             {2, 3, 1000},
                             {241, 31, 19},
                             {31, 481, 13}}) {
        Product<TypeParam> plain{bool(trans & 1), bool(trans & 2), m, n, k, slack};
        plain.run();
        EXPECT_LE(plain.worst(), 1) << m << " " << n << " " << k << " trans " << trans << " slack " << slack;
        Product<TypeParam> scaled{bool(trans & 1), bool(trans & 2), m, n, k, slack, TypeParam(-1.5), TypeParam(0.5)};
        scaled.run();
        EXPECT_LE(scaled.worst(), 1) << m << " " << n << " " << k << " trans " << trans << " scaled";
      }
}

TYPED_TEST(Gemm, DoesNotReadTheResultWhenBetaIsZero) {
  Product<TypeParam> product{false, false, 5, 6, 7};
  product.c.assign(product.c.size(), std::numeric_limits<TypeParam>::quiet_NaN());
  product.run();
  EXPECT_LE(product.worst(), 1);
}

TYPED_TEST(Gemm, EmptyResultDoesNothing) {
  Product<TypeParam> product{false, false, 0, 6, 7};
  EXPECT_TRUE(product.run().empty());
}

TYPED_TEST(Gemm, IsReproducibleOnConcurrentRanks) {
  const std::vector<TypeParam> expected = [] {
    Context one{.threads = 1};
    ContextGuard guard(one);
    return Product<TypeParam>{false, true, 250, 490, 300}.run();
  }();
  std::array<std::vector<TypeParam>, 4> results;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&results, rank] {
      ContextGuard guard(Context{.rank = rank, .threads = 1});
      for (int i = 0; i < 3; ++i)
        results[static_cast<size_t>(rank)] = Product<TypeParam>{false, true, 250, 490, 300}.run();
    });
  for (std::thread& rank : ranks) rank.join();
  for (const auto& result : results) EXPECT_TRUE(result == expected);
}

TEST(GemmThreads, Float64GivesTheSameBitsOnAnyThreadCount) {
  std::vector<std::vector<double>> results;
  for (int threads : {1, 2, 3, 5}) {
    ContextGuard guard(Context{.threads = threads});
    results.push_back(Product<double>{true, false, 513, 1000, 270}.run());
    EXPECT_TRUE(results.back() == results.front()) << threads << " threads";
  }
}

TEST(KernelLibrary, ReportsItsVersion) { EXPECT_NE(kernel_library().find_first_of("0123456789"), std::string::npos); }

#if defined(__x86_64__) || defined(__aarch64__)
TEST(GemmOfSubnormals, ResultsAreZeroOnOneThread) {
  const ContextGuard guard([](Context& next) { next.threads = 1; });
  Product<float> product{.trans_a = false, .trans_b = true, .m = 600, .n = 500, .k = 3};
  std::fill(product.a.begin(), product.a.end(), 0x1p-100f);
  std::fill(product.b.begin(), product.b.end(), 0x1p-40f);
  EXPECT_EQ(product.run(), std::vector<float>(600 * 500, 0.0f));
  volatile float small = 0x1p-100f;
  EXPECT_EQ(small * 0x1p-40f, 0x1p-140f) << "the mode is restored";
}
#endif

}  // namespace gemm_test
}  // namespace godwit
