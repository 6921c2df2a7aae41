// linear_cross_entropy in parts on a GPU, compared with the CPU in float64.
#include "autograd/ops/linear_cross_entropy.h"
#include "tests/autograd/gradient_check.h"
#include "tests/on_gpu.h"

namespace godwit {
namespace cuda_linear_cross_entropy_test {

using test::random_tensor, test::values;

class CudaLinearCrossEntropy : public OnGpu {};

TEST_F(CudaLinearCrossEntropy, MatchesTheCpu) {
  constexpr int64_t n = 130, classes = 17011, width = 8;  // more logits than are kept
  const Tensor labels({n}, DType::i32, kCpu);
  for (int64_t i = 0; i < n; ++i)
    labels.data<int32_t>()[i] = i % 7 == 3 ? -1 : static_cast<int32_t>(i * 7919 % classes);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = random_tensor({n, width}, DType::f32, 1).to(dtype);
    const Tensor w = random_tensor({classes, width}, DType::f32, 2, 0.2);
    const auto run = [&](DType x_type, DType w_type) {
      const Device device = context().device;
      const Var vx(x.to(x_type).to(device).clone(), true), vw(w.to(w_type).to(device).clone(), true);
      const Var loss = ops::linear_cross_entropy(vx, vw, labels, -1);
      backward(loss);
      return std::array{values(loss.value().to(kCpu)), values(vx.grad().to(kCpu)), values(vw.grad().to(kCpu))};
    };
    const auto expected = run(DType::f64, DType::f64);
    const auto found = on_gpu([&] { return run(dtype, DType::f32); });
    // Gradients are at most 1/n. bfloat16 rounds logits of order 1 and the gradients of x in each of 14 parts.
    const double tolerance = dtype == DType::f32 ? 1e-5 : 2e-2;
    EXPECT_NEAR(found[0][0], expected[0][0], tolerance);
    for (size_t r : {1u, 2u})
      for (size_t i = 0; i < expected[r].size(); ++i)
        ASSERT_NEAR(found[r][i], expected[r][i], tolerance / n) << dtype << " " << r << " " << i;
  }
}

}  // namespace cuda_linear_cross_entropy_test
}  // namespace godwit
