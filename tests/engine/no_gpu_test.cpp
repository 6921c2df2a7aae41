// The errors of operations that need a GPU, on a machine or a thread without one.
#include <gmock/gmock.h>

#include "engine/event.h"
#include "engine/gpu.h"
#include "engine/graph.h"
#include "tests/on_gpu.h"
#include "tests/support.h"

namespace godwit {
namespace no_gpu_test {

using ::testing::HasSubstr;

TEST(Cuda, WithoutAGpuEveryErrorNamesTheReason) {
  if (cuda_devices() > 0) GTEST_SKIP() << "this machine has a GPU";
  ASSERT_THAT(why_no_cuda(), HasSubstr(";")) << "the message must name a remedy";
  EXPECT_THAT(error_of([] { context_on(cuda_device(0)); }), HasSubstr("cuda:0: " + why_no_cuda()));
  EXPECT_FALSE(error_of([] { Tensor({2}, DType::f32, cuda_device(0)); }).empty());
  EXPECT_FALSE(error_of([] { Tensor::zeros({2}).to(cuda_device(0)); }).empty());
}

TEST(Graphs, AThreadWithoutAGpuIsRefused) {
  EXPECT_THAT(error_of([] { CudaGraphCache(); }), HasSubstr("graphs: CUDA graphs need a GPU"));
  EXPECT_FALSE(capturing());
  bool called = false;
  on_replay([&] { called = true; });
  EXPECT_FALSE(called);
  graph_break([&] { called = true; });
  EXPECT_TRUE(called);
}

}  // namespace no_gpu_test
}  // namespace godwit
