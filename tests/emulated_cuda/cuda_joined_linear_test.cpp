// Products of joined_linear(): one for each pass if its parameters have a constant stride.
#include <gtest/gtest.h>

#include "cublasLt.h"
#include "tests/autograd/ops/linear_cases.h"
#include "tests/on_gpu.h"

namespace godwit {
namespace cuda_joined_linear_test {

class CudaJoinedLinear : public OnGpu {
 protected:
  ~CudaJoinedLinear() override { emulated_blas::epilogues = true; }

  // Products of the forward and backward pass of three layers of 16 by 8 values whose parameters, in the order weight,
  // bias, weight, …, begin at these elements of a bucket. Their values are checked.
  int64_t products(DType type, bool bias, const std::vector<int64_t>& begin, int64_t in = 16) {
    return on_gpu([&] {
      const Tensor values({4096}, compute_dtype(type)), grads({4096}, compute_dtype(type));
      const auto place = [&](size_t i, const Shape& shape) {
        const auto part = [&](const Tensor& bucket) { return bucket.range(begin[i], shape.numel()).view(shape); };
        return std::pair(part(values), part(grads));
      };
      const int64_t before = emulated_blas::products;
      test::expect_joined_linear_equals_layers(type, 24, in, {8, 8, 8}, bias, place);
      return emulated_blas::products - before;
    });
  }
};

// Weights have 128 values. The gradient of x always takes one product.
TEST_F(CudaJoinedLinear, ParametersAtEqualDistancesTakeOneProductPerPass) {
  const std::vector<int64_t> neighbors{0, 128, 136, 264, 272, 400}, with_gaps{0, 1024, 256, 1280, 512, 1536};
  const std::vector<int64_t> reversed{272, 400, 136, 264, 0, 128}, irregular{0, 128, 136, 264, 400, 528};
  const std::vector<int64_t> other_biases{0, 2048, 136, 2056, 272, 2080}, unaligned{1, 129, 137, 265, 273, 401};
  for (const DType type : {DType::f32, DType::f64})
    for (const bool bias : {false, true}) {
      EXPECT_EQ(products(type, bias, neighbors), 3);
      EXPECT_EQ(products(type, bias, with_gaps), 3);
      EXPECT_EQ(products(type, bias, other_biases), bias ? 7 : 3);
      for (const auto& begin : {reversed, irregular, unaligned}) EXPECT_EQ(products(type, bias, begin), 7);
    }
}

// Weights without a current copy in bfloat16 are rounded into one matrix; only their gradients depend on the strides.
TEST_F(CudaJoinedLinear, RoundedWeightsAreNeighbors) {
  for (const bool bias : {false, true}) {
    EXPECT_EQ(products(DType::bf16, bias, {0, 128, 136, 264, 272, 400}), 3);
    EXPECT_EQ(products(DType::bf16, bias, {1, 129, 137, 265, 273, 401}), 5);
  }
}

TEST_F(CudaJoinedLinear, NeedsNoEpilogue) {
  emulated_blas::epilogues = false;
  for (const DType type : {DType::f32, DType::bf16})
    for (const auto& begin : {std::vector<int64_t>{0, 128, 136, 264, 272, 400}, {1, 129, 137, 265, 273, 401}})
      products(type, true, begin);
}

}  // namespace cuda_joined_linear_test
}  // namespace godwit
