// The golden files of LLaMA on a GPU.
#include "tests/models/llama_golden.h"
#include "tests/on_gpu.h"

namespace godwit {
namespace cuda_llama_golden_test {

class CudaLlamaGolden : public OnGpu {};

TEST_F(CudaLlamaGolden, Float32) { llama_golden::expect_golden_on("cuda:0", "llama3", DType::f32); }

TEST_F(CudaLlamaGolden, Bfloat16StaysNearFloat64) {
  test::on_rank("cuda:0", llama_golden::expect_bfloat16_near_float64);
}

}  // namespace cuda_llama_golden_test
}  // namespace godwit
