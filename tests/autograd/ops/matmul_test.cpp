#include "autograd/ops/matmul.h"

#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace matmul_test {

using test::check_gradients, test::random_tensor, test::values, test::with_threads;

struct Product {
  int64_t batch, m, k, n;  // batch 0: plain matrices
  Shape shape(int64_t rows, int64_t columns) const {
    return batch == 0 ? Shape{rows, columns} : Shape{batch, rows, columns};
  }
  Shape a(bool transposed) const { return transposed ? shape(k, m) : shape(m, k); }
  Shape b(bool transposed) const { return transposed ? shape(n, k) : shape(k, n); }
};

const std::vector<Product> kProducts{{0, 1, 1, 1}, {0, 3, 5, 4}, {1, 2, 3, 1}, {3, 4, 2, 5}};

TEST(Matmul, Gradients) {
  for (const Product& p : kProducts)
    for (const bool trans_a : {false, true})
      for (const bool trans_b : {false, true}) {
        const Tensor a = random_tensor(p.a(trans_a), DType::f64, 1), b = random_tensor(p.b(trans_b), DType::f64, 2);
        auto product = [=](const Var& x, const Var& y) { return ops::matmul(x, y, trans_a, trans_b); };
        check_gradients([&](const auto& v) { return product(v[0], v[1]); }, {a, b});
        check_gradients([&](const auto& v) { return product(v[0], Var(b)); }, {a});
        check_gradients([&](const auto& v) { return product(Var(a), v[0]); }, {b});
      }
}

TEST(Matmul, EqualsTheDefinition) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (const Product& p : {Product{0, 1, 1, 1}, {0, 33, 65, 17}, {2, 5, 129, 20}})
      for (const bool trans_a : {false, true})
        for (const bool trans_b : {false, true}) {
          const Tensor a = random_tensor(p.a(trans_a), DType::f32, 1).to(dtype);
          const Tensor b = random_tensor(p.b(trans_b), DType::f32, 2).to(dtype);
          const Tensor c = ops::matmul(Var(a), Var(b), trans_a, trans_b).value();
          ASSERT_EQ(c.shape(), p.shape(p.m, p.n));
          const auto av = values(a), bv = values(b), cv = values(c);
          // Rounding of a sum of k products in any order. A bfloat16 result is rounded by 2⁻⁸ at the end.
          const double unit = static_cast<double>(p.k + 1) * (dtype == DType::f64 ? 0x1p-53 : 0x1p-24) +
                              (dtype == DType::bf16 ? 0x1p-8 : 0);
          for (int64_t i = 0; i < c.numel(); ++i) {
            const int64_t entry = i / (p.m * p.n), row = i / p.n % p.m, column = i % p.n;
            double sum = 0, size = 0;
            for (int64_t k = 0; k < p.k; ++k) {
              const double term =
                  av[static_cast<size_t>(entry * p.m * p.k + (trans_a ? k * p.m + row : row * p.k + k))] *
                  bv[static_cast<size_t>(entry * p.k * p.n + (trans_b ? column * p.k + k : k * p.n + column))];
              sum += term, size += std::abs(term);
            }
            ASSERT_NEAR(cv[static_cast<size_t>(i)], sum, unit * size) << dtype << " " << trans_a << trans_b;
          }
        }
}

TEST(Matmul, Float64GivesTheSameBitsOnAnyThreadCount) {
  const Tensor a = random_tensor({2, 70, 50}), b = random_tensor({2, 50, 90}, DType::f64, 2);
  auto run = [&] { return values(ops::matmul(Var(a), Var(b)).value()); };
  EXPECT_EQ(with_threads(1, run), with_threads(3, run));
}

TEST(Matmul, NamesInvalidArguments) {
  auto message = [](const Shape& a, const Shape& b, bool trans_b = false) {
    return error_of([&] { ops::matmul(Var(Tensor::zeros(a)), Var(Tensor::zeros(b)), false, trans_b); });
  };
  EXPECT_EQ(message({2, 3}, {4, 5}), "matmul: a [2, 3] has 3 columns, b [4, 5] has 4 rows");
  EXPECT_EQ(message({2, 3}, {3, 5}, true), "matmul: a [2, 3] has 3 columns, b [3, 5] transposed has 5 rows");
  EXPECT_EQ(message({2, 3}, {1, 3, 5}), "matmul: b must have two extents, a is [2, 3], b [1, 3, 5]");
  EXPECT_EQ(message({2, 2, 3}, {1, 3, 5}),
            "matmul: b must have three extents and a's first extent, a is [2, 2, 3], b [1, 3, 5]");
  EXPECT_EQ(message({3}, {3}), "matmul: a must be a matrix or [batch, rows, columns], got [3]");
  EXPECT_NE(message({0, 3}, {3, 5}).find("nothing to compute"), std::string::npos);
  EXPECT_THROW(ops::matmul(Var(Tensor::zeros({2, 2})), Var(Tensor::zeros({2, 2}, DType::f64))), Error);
  const Var half(Tensor::zeros({2, 2}, DType::f16));
  EXPECT_THROW(ops::matmul(half, half), Error);
}

}  // namespace matmul_test
}  // namespace godwit
