// The golden files of GPT-2 on a GPU.
#include "tests/models/gpt2_golden.h"
#include "tests/on_gpu.h"

namespace godwit {
namespace cuda_gpt2_golden_test {

class CudaGpt2Golden : public OnGpu {};

TEST_F(CudaGpt2Golden, Float32) { gpt2_golden::expect_golden_on("cuda:0", "gelu_new", DType::f32); }

TEST_F(CudaGpt2Golden, Bfloat16StaysNearFloat64) {
  test::on_rank("cuda:0", gpt2_golden::expect_bfloat16_near_float64);
}

}  // namespace cuda_gpt2_golden_test
}  // namespace godwit
