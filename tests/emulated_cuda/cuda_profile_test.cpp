// NVTX ranges of a training step.
#include <algorithm>

#include "autograd/ops/linear.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/transport/local.h"
#include "optim/data_parallel.h"
#include "tests/emulated_cuda/nvtx3/nvToolsExt.h"
#include "tests/gpu_memory.h"

namespace godwit {
namespace cuda_profile_test {

TEST(CudaProfile, ShowsTheBackwardPassAndEachBucketsExchangeCollectivesAndUpdate) {
  const auto step = [](Communicator& alone) {
    const Var weight(Tensor::of(random_values<float>(12, 1), {3, 4}), true), bias(Tensor::zeros({3}), true);
    DataParallelOptions options;
    options.optimizer = "sgdm";
    options.buckets = {16, 16, 32};  // bytes; each parameter gets its own bucket
    DataParallel replica({{"weight", weight}, {"bias", bias}}, alone, options);
    emulated_nvtx::ended.clear();
    const Var x(Tensor::of(random_values<float>(8, 2), {2, 4}));
    replica.step(ops::softmax_cross_entropy(ops::linear(x, weight, bias), Tensor::of<int32_t>({0, 2}, {2})));
    EXPECT_TRUE(emulated_nvtx::open_ranges.empty());
  };
  run_local({1, 1}, step);
  std::vector<std::string> ended = emulated_nvtx::ended;  // the exchange's thread runs concurrently with backward
  std::sort(ended.begin(), ended.end());
  EXPECT_EQ(ended, (std::vector<std::string>{"apply 0", "apply 1", "backward", "dense/all_reduce", "dense/all_reduce",
                                             "exchange 0", "exchange 1", "finish step"}));
}

}  // namespace cuda_profile_test
}  // namespace godwit
