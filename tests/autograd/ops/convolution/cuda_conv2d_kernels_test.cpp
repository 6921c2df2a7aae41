// conv2d on a GPU compared with float64 on the CPU: with cuDNN, with conversion to float32, and with the plain kernels.
#include <gmock/gmock.h>

#include <iostream>
#include <limits>

#include "autograd/leaf.h"
#include "autograd/ops/convolution/conv2d.h"
#include "engine/cuda/dnn.h"
#include "engine/gpu.h"
#include "tests/autograd/gradient_check.h"
#include "tests/on_gpu.h"
#include "tests/support.h"

namespace godwit {
namespace cuda_conv2d_kernels_test {

using test::random_tensor, test::values;

struct Case {
  Shape x, w;
  Conv2dOptions options;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  const Conv2dOptions& o = c.options;
  return out << "x " << c.x << " w " << c.w << " stride " << o.stride << " padding " << o.padding << " dilation "
             << o.dilation << " groups " << o.groups;
}

std::vector<Case> grid() {
  std::vector<Case> cases;
  for (const int64_t kernel : {1, 3})
    for (const int groups : {1, 2, 4})  // 4: depthwise, with two filters per channel
      for (const int dilation : {1, 2})
        for (const int padding : {0, 2})
          for (const int stride : {1, 2, 3})
            cases.push_back({{2, 6, 9, 4}, {8, kernel, kernel, 4 / groups}, {stride, padding, dilation, groups}});
  return cases;
}

// Layers of ResNets, on small images.
std::vector<Case> resnet_layers() {
  return {{{2, 12, 12, 3}, {16, 3, 3, 3}, {.padding = 1}},
          {{1, 16, 16, 3}, {64, 7, 7, 3}, {.stride = 2, .padding = 3}},
          {{2, 8, 8, 16}, {16, 3, 3, 16}, {.padding = 1}},
          {{2, 8, 8, 16}, {32, 3, 3, 16}, {.stride = 2, .padding = 1}},
          {{2, 7, 7, 64}, {64, 1, 1, 64}, {}},
          {{1, 8, 8, 64}, {128, 1, 1, 64}, {.stride = 2}}};
}

std::vector<Case> odd_cases() {
  return {{{1, 1, 1, 256}, {64, 1, 1, 256}, {}},
          {{2, 7, 5, 17}, {33, 3, 3, 17}, {.padding = 1}},
          {{1, 9, 9, 24}, {24, 3, 3, 1}, {.stride = 2, .padding = 1, .groups = 24}},
          {{1, 8, 8, 32}, {32, 3, 3, 8}, {.padding = 2, .dilation = 2, .groups = 4}},
          {{2, 6, 9, 5}, {7, 2, 4, 5}, {.stride = 3, .padding = 1}},
          {{1, 3, 3, 1}, {1, 3, 3, 1}, {}}};
}

// Runs all kernels of a convolution on the context's device. Results and gradients are written to memory filled with
// NaN.
struct Results {
  Tensor y, dx, dw, db;

  Results(const Conv2dShape& s, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& dy) {
    const auto here = [](const Tensor& t) { return t.defined() ? t.to(context().device) : t; };
    const auto fresh = [](const Tensor& like) {
      return like.defined() ? Tensor::full(like.shape(), std::numeric_limits<double>::quiet_NaN(), like.dtype()) : like;
    };
    y = fresh(dy), dx = fresh(x), dw = fresh(w), db = fresh(bias);
    on_device(y, [&](auto device) {
      conv2d_forward(device, s, here(x), here(w), here(bias), y);
      conv2d_backward_data(device, s, here(dy), here(w), dx);
      conv2d_backward_weights(device, s, here(x), here(dy), dw, db);
    });
    for (Tensor* t : {&y, &dx, &dw, &db})
      if (t->defined()) *t = t->to(kCpu);
  }
};

struct Inputs {
  Conv2dShape s;
  Tensor x, w, bias, dy;

  Inputs(const Case& c, DType dtype, bool with_bias)
      : s(conv2d_shape(c.x, c.w, c.options)),
        x(random_tensor(c.x, DType::f64, 1).to(dtype)),
        w(random_tensor(c.w, DType::f64, 2).to(compute_dtype(dtype))),
        bias(with_bias ? random_tensor({s.o}, DType::f64, 3).to(compute_dtype(dtype)) : Tensor()),
        dy(random_tensor({s.n, s.ho, s.wo, s.o}, DType::f64, 4).to(dtype)) {}

  Results run() const { return Results(s, x, w, bias, dy); }
  // The results in float64. With `absolute`, the results of absolute inputs, which bound the rounding errors.
  Results exact(bool absolute) const {
    const auto wide = [&](const Tensor& t) {
      if (!t.defined()) return t;
      const Tensor result = t.to(DType::f64).clone();
      if (absolute)
        for (double& value : result.span<double>()) value = std::abs(value);
      return result;
    };
    return Results(s, wide(x), wide(w), wide(bias), wide(dy));
  }
};

// Channels that are not multiples of 8, the unit of cuDNN's tensor-core engines, on one or both sides.
std::vector<Case> channel_cases() {
  const std::vector<std::pair<int64_t, int64_t>> in_and_out{{2, 6},   {4, 4},   {4, 8},   {4, 12},  {8, 4},  {8, 8},
                                                            {8, 10},  {8, 12},  {8, 24},  {10, 8},  {12, 4}, {12, 8},
                                                            {12, 20}, {16, 20}, {20, 16}, {36, 64}, {40, 8}, {64, 36}};
  std::vector<Case> cases;
  for (const auto& [in, out] : in_and_out)
    for (const int padding : {0, 1})
      cases.push_back({{2, 6, 9, in}, {out, 2 * padding + 1, 2 * padding + 1, in}, {.padding = padding}});
  return cases;
}

class CudaConv2d : public OnGpu {
 protected:
  // Rounding error of a sum of k products in any order: at most (k + 1) · u · Σ|a·b|, with u = 2⁻²⁴ or 2⁻⁵³. TF32
  // rounds both factors by 2⁻¹¹ each. bfloat16 rounds the filters, the sum, and the sum plus bias by up to 2⁻⁸ each.
  // `more` is added to the bound.
  void expect_close(const Tensor& x, const Tensor& exact, const Tensor& size, int64_t terms, const char* name,
                    double more = 0) const {
    if (!exact.defined()) return;
    ASSERT_EQ(x.shape(), exact.shape()) << name;
    const double unit = x.dtype() == DType::f64 ? 0x1p-53 : 0x1p-24;
    const double bound = static_cast<double>(terms + 2) * unit + (x.dtype() == DType::bf16 ? 3 * 0x1p-8 : 0) + more +
                         (gpu_->tf32 && x.dtype() == DType::f32 ? 0x1p-10 + 0x1p-21 : 0);
    const auto found = values(x), expected = values(exact), sizes = values(size);
    for (size_t i = 0; i < found.size(); ++i)
      ASSERT_LE(std::abs(found[i] - expected[i]), bound * sizes[i] + 1e-30)
          << name << ", element " << i << ": " << found[i] << ", exactly " << expected[i];
  }

  void expect_agrees(const Case& c, DType dtype, bool bias = true) const {
    SCOPED_TRACE(::godwit::detail::concat(dtype, " ", ::testing::PrintToString(c)));
    const Inputs inputs(c, dtype, bias);
    const Conv2dShape& s = inputs.s;
    bool rounded = false;  // filter gradients have one rounding to bfloat16 more
    const Results found = on_gpu([&] {
      const size_t before = convolution_paths().rounded.size();
      Results results = inputs.run();
      rounded = convolution_paths().rounded.size() > before;
      return results;
    });
    const Results exact = inputs.exact(false), size = inputs.exact(true);
    expect_close(found.y, exact.y, size.y, s.kh * s.kw * (s.c / s.groups) + 1, "y");
    expect_close(found.dx, exact.dx, size.dx, s.kh * s.kw * (s.o / s.groups), "dx");
    expect_close(found.dw, exact.dw, size.dw, s.n * s.ho * s.wo, "dw", rounded ? 0x1p-8 : 0);
    expect_close(found.db, exact.db, size.db, s.n * s.ho * s.wo, "db");
  }
};

TEST_F(CudaConv2d, AgreesOnTheGrid) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c : grid()) expect_agrees(c, dtype, c.options.stride > 1);
}

TEST_F(CudaConv2d, AgreesForAnyNumberOfChannels) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c : channel_cases()) expect_agrees(c, dtype);
}

TEST_F(CudaConv2d, AgreesOnLayers) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& cases : {resnet_layers(), odd_cases()})
      for (const Case& c : cases) expect_agrees(c, dtype);
}

TEST_F(CudaConv2d, Float64UsesPlainKernels) {
  for (const Case& c : grid())
    if (c.options.stride != 1) expect_agrees(c, DType::f64);
  for (const Case& c : odd_cases()) expect_agrees(c, DType::f64, false);
}

TEST_F(CudaConv2d, Tf32RoundsOnlyTheFactors) {
  gpu_->tf32 = true;
  for (const Case& c : resnet_layers()) expect_agrees(c, DType::f32);
}

// Layers of the models must not use the plain kernels. In bfloat16, layers with an odd number of channels may be
// computed another way.
TEST_F(CudaConv2d, ResNetsUseCudnn) {
  on_gpu([&] {
    for (const Case& c : resnet_layers()) {
      const Conv2dShape s = conv2d_shape(c.x, c.w, c.options);
      const auto why = [&](Convolution what, DType images, DType filters, bool tf32) {
        const Tensor x = Tensor::zeros(c.x, images), w = Tensor::zeros(c.w, filters),
                     y = Tensor::zeros({s.n, s.ho, s.wo, s.o}, images);
        const ConvolutionOptions options{s.stride, s.padding, s.dilation, tf32};
        return std::string(convolve(cuda_of(context().device), what, options, x, w, y));
      };
      for (const Convolution what : {Convolution::forward, Convolution::backward_data, Convolution::backward_filter}) {
        SCOPED_TRACE(::testing::PrintToString(c) + ", operation " + std::to_string(static_cast<int>(what)));
        EXPECT_EQ(why(what, DType::f32, DType::f32, false), "");
        EXPECT_EQ(why(what, DType::f32, DType::f32, true), "");
        const DType filters = what == Convolution::backward_filter ? DType::f32 : DType::bf16;
        const std::string half = why(what, DType::bf16, filters, false);
        if (c.x[3] % 8 == 0) EXPECT_EQ(half, "") << c;
        else if (!half.empty()) std::cout << "no direct bfloat16 engine: " << c << ": " << half << "\n";
      }
    }
  });
}

TEST_F(CudaConv2d, NamesTheReasonWhenCudnnIsNotUsed) {
  on_gpu([&] {
    const Tensor x = Tensor::zeros({1, 4, 4, 8}), w = Tensor::zeros({8, 3, 3, 8}, DType::bf16),
                 y = Tensor::zeros({1, 4, 4, 8}, DType::bf16);
    const std::string_view why = convolve(cuda_of(context().device), Convolution::forward, {1, 1, 1, false}, x, w, y);
    EXPECT_FALSE(why.empty());  // factors of different types
    EXPECT_EQ(why, convolve(cuda_of(context().device), Convolution::forward, {1, 1, 1, false}, x, w, y));
    EXPECT_THAT(error_of([&] {
                  const Tensor off = Tensor::zeros({1 + 4 * 4 * 8}).range(1, 4 * 4 * 8).view({1, 4, 4, 8});
                  convolve(cuda_of(context().device), Convolution::forward, {1, 1, 1, false}, off,
                           Tensor::zeros({8, 3, 3, 8}), Tensor::zeros({1, 4, 4, 8}));
                }),
                ::testing::HasSubstr("aligned to 16 bytes"));
    EXPECT_THAT(error_of([&] {
                  convolve(cuda_of(context().device), Convolution::forward, {1, 1, 1, false},
                           Tensor::zeros({1, 4, 4, 8}).to(kCpu), Tensor::zeros({8, 3, 3, 8}),
                           Tensor::zeros({1, 4, 4, 8}));
                }),
                ::testing::HasSubstr("on the CPU"));
  });
}

TEST_F(CudaConv2d, IsReproducible) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c : resnet_layers()) {
      const Inputs inputs(c, dtype, true);
      on_gpu([&] {
        const Results first = inputs.run();
        for (int i = 0; i < 3; ++i) {
          const Results again = inputs.run();
          EXPECT_EQ(values(again.y), values(first.y)) << c;
          EXPECT_EQ(values(again.dx), values(first.dx)) << c;
          EXPECT_EQ(values(again.dw), values(first.dw)) << c;
          EXPECT_EQ(values(again.db), values(first.db)) << c;
        }
      });
    }
}

// Through Var, with parameters and gradients at arbitrary offsets of flat memory.
TEST_F(CudaConv2d, ParametersMayBeginAtAnyOffsetInTheirBucket) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Case c{{2, 5, 5, 8}, {8, 3, 3, 8}, {.padding = 1}};
    const Inputs in(c, dtype, true);
    const auto run = [&](int64_t at) {
      const Tensor flat = Tensor::full({700}, 7), flat_gradient = Tensor::full({700}, 9);
      const Var x(in.x.to(context().device), true), w(in.w.to(context().device), true),
          bias(in.bias.to(context().device), true);
      Leaf(w).rebind(flat.range(at, 576).view(c.w), flat_gradient.range(at, 576).view(c.w));
      Leaf(bias).rebind(flat.range(at + 576, 8), flat_gradient.range(at + 576, 8));
      const Var y = ops::conv2d(x, w, bias, c.options);
      EXPECT_EQ(y.dtype(), dtype);
      EXPECT_EQ(y.device(), context().device);
      test::backward_from(y, in.dy.to(context().device));
      for (const int64_t i : {at - 1, at + 584}) {
        EXPECT_EQ(flat.item(i), 7);
        EXPECT_EQ(flat_gradient.item(i), 9);
      }
      EXPECT_TRUE(w.grad().same_memory(flat_gradient.range(at, 576)));
      return std::vector{values(y.value()), values(x.grad()), values(w.grad()), values(bias.grad())};
    };
    on_gpu([&] {
      const auto aligned = run(4);
      for (const int64_t at : {1, 2, 3}) EXPECT_EQ(run(at), aligned) << dtype << ", parameters at " << at;
    });
  }
}

TEST_F(CudaConv2d, RefusesParametersOnTheCpu) {
  const Tensor w = Tensor::zeros({8, 1, 1, 8}), bias = Tensor::zeros({8});
  on_gpu([&] {
    const Var x(Tensor::zeros({1, 2, 2, 8}));
    EXPECT_THAT(error_of([&] { ops::conv2d(x, Var(w)); }), ::testing::HasSubstr("on the CPU"));
    EXPECT_THAT(error_of([&] { ops::conv2d(x, Var(w.to(context().device)), Var(bias)); }),
                ::testing::HasSubstr("on the CPU"));
    EXPECT_THAT(error_of([&] {
                  ops::conv2d(Var(Tensor::zeros({1, 2, 2, 8}, DType::f16)), Var(w));
                }),
                ::testing::HasSubstr("conv2d: takes float32, bfloat16 or float64"));
  });
}

}  // namespace cuda_conv2d_kernels_test
}  // namespace godwit
