// batch_norm on a GPU compared with the CPU.
#include <gmock/gmock.h>

#include <limits>

#include "autograd/ops/normalization/batch_norm.h"
#include "autograd/ops/normalization/batch_norm_ranks.h"
#include "tests/autograd/gradient_check.h"
#include "tests/on_gpu.h"
#include "tests/support.h"

namespace godwit {
namespace cuda_batch_norm_kernels_test {

using test::random_tensor, test::values;

Tensor random(Shape shape, DType dtype, uint64_t seed, double scale = 1) {
  return random_tensor(shape, DType::f64, seed, scale).to(dtype);
}

struct Case {
  Shape shape;
  DType dtype;
  BatchNormOptions options;
  bool residual;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.dtype << " " << c.shape << " training " << c.options.training << " relu " << c.options.relu
             << " residual " << c.residual;
}

// Returns y, the gradients of x, gamma, beta and residual, and the running statistics. If dy is not held, backward may
// overwrite it.
std::vector<Tensor> results(const Case& c, bool dy_is_held, int64_t offset = 0) {
  const DType parameters = compute_dtype(c.dtype);
  const int64_t channels = c.shape[c.shape.rank() - 1];
  const auto here = [](const Tensor& x) { return x.to(context().device).clone(); };
  const auto placed = [&](const Tensor& x) {  // placed `offset` elements after the start of an allocation
    const Tensor result = Tensor(Shape{x.numel() + offset}, x.dtype()).range(offset, x.numel()).view(x.shape());
    result.copy_from(x);
    return result;
  };
  const Var x(placed(random(c.shape, c.dtype, 1, 2)), true), residual(here(random(c.shape, c.dtype, 2)), true);
  const Var gamma(here(random({channels}, parameters, 3)), true), beta(here(random({channels}, parameters, 4)), true);
  const Tensor mean = here(random({channels}, parameters, 5)), var = Tensor::full({channels}, 2.5, parameters);
  const Var y = ops::batch_norm(x, gamma, beta, mean, var, c.options, c.residual ? residual : Var());
  const Tensor dy = here(random(c.shape, c.dtype, 6)), value = y.value().to(kCpu).clone();
  test::backward_from(y, [&] { return dy_is_held ? dy : dy.clone(); });
  std::vector<Tensor> all{value,         x.grad().to(kCpu), gamma.grad().to(kCpu), beta.grad().to(kCpu),
                          mean.to(kCpu), var.to(kCpu)};
  if (c.residual) all.push_back(residual.grad().to(kCpu));
  EXPECT_TRUE(!dy_is_held || values(dy) == values(random(c.shape, c.dtype, 6)));
  return all;
}

std::vector<std::vector<double>> numbers(const std::vector<Tensor>& all) {
  std::vector<std::vector<double>> result;
  for (const Tensor& t : all) result.push_back(values(t));
  return result;
}

class CudaBatchNorm : public OnGpu {
 protected:
  // Errors relative to the largest value of a result. The CPU sums 256 terms in float32; bfloat16 is rounded once more.
  static void compare(const std::vector<Tensor>& found, const std::vector<Tensor>& expected, const std::string& what) {
    const char* names[] = {"y", "dx", "d_gamma", "d_beta", "running_mean", "running_var", "d_residual"};
    ASSERT_EQ(found.size(), expected.size());
    for (size_t k = 0; k < found.size(); ++k) {
      ASSERT_EQ(found[k].shape(), expected[k].shape());
      ASSERT_EQ(found[k].dtype(), expected[k].dtype());
      const auto f = values(found[k]), e = values(expected[k]);
      double largest = 1;
      for (const double value : e) largest = std::max(largest, std::abs(value));
      const DType dtype = found[k].dtype();
      const double bound = dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 1e-5 : 0x1p-8;
      for (size_t i = 0; i < e.size(); ++i)
        ASSERT_LE(std::abs(f[i] - e[i]), bound * largest)
            << what << ", " << names[k] << ", element " << i << ": " << f[i] << ", on the CPU " << e[i];
    }
  }

  void expect_agrees(const Case& c) {
    held_ = !held_;
    compare(on_gpu([&] { return results(c, held_); }), results(c, held_), ::testing::PrintToString(c));
  }

  bool held_ = false;  // whether dy is held; alternates
};

const DType kTypes[] = {DType::f32, DType::bf16, DType::f64};
// One channel; multiples of the pack size and others; channel tiles; row chunks; row counts that are multiples of 4,
// and others.
const Shape kShapes[] = {{2, 1}, {3, 5, 7, 17}, {2, 7, 9, 16}, {4, 3, 5, 140}, {700, 8}, {200, 48}};

TEST_F(CudaBatchNorm, AgreesWithTheCpu) {
  for (const DType dtype : {DType::bf16, DType::f32, DType::f64})
    for (const Shape& shape : kShapes)
      for (const bool relu : {true, false})
        for (const bool residual : {true, false}) expect_agrees({shape, dtype, {.relu = relu}, residual});
}

TEST_F(CudaBatchNorm, AgreesWithTheCpuWithRunningStatistics) {
  for (const DType dtype : kTypes)
    for (const bool relu : {true, false})
      for (const bool residual : {true, false})
        expect_agrees({{3, 5, 7, 16}, dtype, {.training = false, .relu = relu}, residual});
}

TEST_F(CudaBatchNorm, UnalignedMemory) {
  const Case c{{5, 3, 3, 16}, DType::f32, {.relu = true}, true};
  for (const int64_t offset : {1, 2, 3})
    compare(on_gpu([&] { return results(c, true, offset); }), results(c, true), "at an odd place");
}

TEST_F(CudaBatchNorm, IsReproducible) {
  for (const DType dtype : kTypes)
    for (const Shape& shape : kShapes) {
      const Case c{shape, dtype, {.relu = true}, true};
      const auto run = [&] { return on_gpu([&] { return numbers(results(c, false)); }); };
      EXPECT_EQ(run(), run()) << c;
    }
}

// Data far from zero, with outliers in the first row, which is the shift of the sums.
TEST_F(CudaBatchNorm, Statistics) {
  for (const double offset : {0.0, 1e4, -3e6}) {
    const Tensor x({4096, 3}, DType::f32, kCpu);
    for (int64_t i = 0; i < x.numel(); ++i)
      x.data<float>()[i] = static_cast<float>(offset + static_cast<double>(i % 7));
    for (const int64_t i : {0, 1, 1536 * 3}) x.data<float>()[i] += 1e6f;
    const auto [mean, variance] = on_gpu([&] {
      const Tensor m({3}, DType::f64), v({3}, DType::f64);
      batch_norm_statistics(cuda_of(context().device), x.to(context().device), m, v);
      return std::pair(m.to(kCpu), v.to(kCpu));
    });
    for (int64_t c = 0; c < 3; ++c) {
      double m = 0, v = 0;
      for (int64_t r = 0; r < 4096; ++r) m += x.item(r * 3 + c) / 4096;
      for (int64_t r = 0; r < 4096; ++r) v += std::pow(x.item(r * 3 + c) - m, 2) / 4096;
      EXPECT_NEAR(mean.item(c), m, 1e-12 * std::abs(m) + 1e-9) << offset << " " << c;
      EXPECT_NEAR(variance.item(c), v, 1e-9 * v + 1e-6) << offset << " " << c;
    }
  }
  on_gpu([&] {
    const Tensor mean({2}, DType::f64), variance({2}, DType::f64), same = Tensor::full({1000, 2}, 0.1);
    batch_norm_statistics(cuda_of(context().device), same, mean, variance);
    EXPECT_EQ(variance.item(1), 0);
    EXPECT_EQ(mean.item(1), same.item());
  });
}

// Two ranks with the same batch: the combined sums are twice those of one rank.
TEST_F(CudaBatchNorm, GathersOnTheDeviceOfX) {
  const auto gather = [](const Tensor& x) {
    EXPECT_EQ(x.device(), context().device);
    const Tensor all({2, x.numel()}, x.dtype());
    for (const int64_t rank : {0, 1}) all.rows(rank, 1).view(x.shape()).copy_from(x);
    return all;
  };
  for (const DType dtype : kTypes)
    for (const bool residual : {true, false})
      expect_agrees({{4, 3, 3, 24}, dtype, {.relu = true, .gather = gather}, residual});
}

// Ranks with few rows, with many and with none. All values are exact up to the last roundings.
TEST_F(CudaBatchNorm, CombinesTheSumsOfRanksLikeTheCpu) {
  constexpr int64_t kChannels = 70, kRanks = 3;
  const double rows[kRanks] = {3, 0, 200};
  const auto run = [&](auto tag) {
    const Tensor of_ranks({kRanks, 1 + 2 * kChannels}, DType::f64), sums_of_ranks({kRanks, 2 * kChannels}, DType::f64);
    for (int64_t r = 0; r < kRanks; ++r) {
      const auto here = [&](uint64_t seed) {
        return random({kChannels}, DType::f64, 10 * seed + static_cast<uint64_t>(r)).to(context().device);
      };
      const Tensor message = of_ranks.rows(r, 1).view({1 + 2 * kChannels});
      batch_norm_pack_statistics(tag(), rows[r], here(1), here(2), message);
      batch_norm_pack_sums(tag(), here(3), here(4), sums_of_ranks.rows(r, 1).view({2 * kChannels}));
    }
    const Tensor all({1}, DType::f64), mean({kChannels}, DType::f64), variance(mean.shape(), DType::f64);
    const Tensor sums({2 * kChannels}, DType::f64);
    batch_norm_combine_statistics(tag(), of_ranks, all, mean, variance);
    batch_norm_combine_sums(tag(), sums_of_ranks, rows[0], all, sums);
    return std::vector{values(all), values(mean), values(variance), values(sums)};
  };
  const auto there = on_gpu([&] { return run([] { return cuda_of(context().device); }); });
  const auto here = run([] { return Cpu{}; });
  EXPECT_EQ(there[0], std::vector<double>{203});
  for (size_t k = 0; k < here.size(); ++k)
    for (size_t i = 0; i < here[k].size(); ++i)
      EXPECT_NEAR(there[k][i], here[k][i], 1e-14 * (1 + std::abs(here[k][i]))) << k << ", " << i;
}

TEST_F(CudaBatchNorm, NanReachesTheOutputAndTheGradients) {
  const Tensor values_in = random({4, 3}, DType::f32, 1);
  values_in.data<float>()[4] = std::numeric_limits<float>::quiet_NaN();
  on_gpu([&] {
    const Var x(values_in.to(context().device), true), gamma(Tensor::full({3}, 1)), beta(Tensor::zeros({3}));
    const Var y = ops::batch_norm(x, gamma, beta, Tensor::zeros({3}), Tensor::zeros({3}), {.relu = true});
    test::backward_from(y, [&] { return Tensor::full({4, 3}, 1); });
    for (int64_t i = 0; i < 12; ++i) {
      EXPECT_EQ(std::isnan(y.value().item(i)), i % 3 == 1) << i;
      EXPECT_EQ(std::isnan(x.grad().item(i)), i % 3 == 1) << i;
    }
  });
}

TEST_F(CudaBatchNorm, NamesInvalidArguments) {
  const Tensor on_cpu = Tensor::full({3}, 1);
  on_gpu([&] {
    const Var one(Tensor::full({3}, 1)), two(Tensor::full({3}, 1));
    const Tensor ones = Tensor::full({3}, 1);
    EXPECT_THAT(error_of([&] {
                  ops::batch_norm(Var(Tensor::zeros({1, 3})), one, two, ones, ones);
                }),
                ::testing::HasSubstr("needs more than one value per channel, x is [1, 3]"));
    EXPECT_THAT(error_of([&] {
                  ops::batch_norm(Var(Tensor::zeros({0, 3})), one, two, ones, ones);
                }),
                ::testing::HasSubstr("needs more than one value per channel, x is [0, 3]"));
    EXPECT_THAT(error_of([&] {
                  ops::batch_norm(Var(Tensor::zeros({2, 3})), one, two, on_cpu, ones);
                }),
                ::testing::HasSubstr("on the CPU"));
    EXPECT_THAT(error_of([&] {
                  ops::batch_norm(Var(Tensor::zeros({2, 3})), one, Var(on_cpu), ones, ones);
                }),
                ::testing::HasSubstr("on the CPU"));
    EXPECT_EQ(ops::batch_norm(Var(Tensor::zeros({0, 3})), one, two, ones, ones, {.training = false}).shape(),
              (Shape{0, 3}));
  });
}

}  // namespace cuda_batch_norm_kernels_test
}  // namespace godwit
