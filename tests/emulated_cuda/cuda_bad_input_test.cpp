// GPUs and libraries that do not match the build. Each must give one message with the value and the remedy.
#include <gmock/gmock.h>

#include "autograd/ops/convolution/conv2d.h"
#include "comm/transport/local.h"
#include "engine/cuda/requirements.h"
#include "tests/emulated_cuda/cudnn.h"
#include "tests/emulated_cuda/nccl.h"
#include "tests/on_gpu.h"
#include "tests/support.h"

namespace godwit {
namespace cuda_bad_input_test {

using ::testing::HasSubstr;

class CudaBadInput : public OnGpu {
 protected:
  void TearDown() override {
    emulated_dnn::version = CUDNN_VERSION;
    emulated_nccl::version = NCCL_VERSION_CODE;
    emulated::capability = 90;
    emulated::peers = true;
    emulated::exclusive = false;
    emulated::total_bytes = size_t{1} << 30;
  }

  // A convolution on a new context.
  static void convolve_once() {
    const ContextGuard guard(context_on(cuda_device(0)));
    const Tensor x = Tensor::zeros({1, 2, 2, 8}), w = Tensor::zeros({8, 1, 1, 8}), y({1, 2, 2, 8});
    on_device(y,
              [&](auto device) { conv2d_forward(device, conv2d_shape(x.shape(), w.shape(), {}), x, w, Tensor(), y); });
  }
};

TEST_F(CudaBadInput, AnOlderCudnnIsRefused) {
  emulated_dnn::version = 91002;
  EXPECT_EQ(error_of(convolve_once),
            "cuDNN 9.10.2 was loaded, but this build needs 9.19.0 or newer; update cuDNN, remove the older one from "
            "LD_LIBRARY_PATH, or build again");
  for (const size_t version : {91900, 91903, 92100}) {
    emulated_dnn::version = version;
    EXPECT_NO_THROW(convolve_once());
  }
}

TEST_F(CudaBadInput, AnOlderNcclIsRefused) {
  const Placement with_nccl{"cuda", false, true, /*nccl_between_threads=*/true};
  const auto connect = [&] { run_local({2, 1}, [](Communicator&) {}, {.placement = with_nccl}); };
  EXPECT_NO_THROW(connect());
  emulated_nccl::version = 22705;
  EXPECT_THAT(error_of(connect),
              HasSubstr("NCCL 2.27.5 was loaded, but this build needs 2.28.3 or newer; update NCCL"));
}

TEST_F(CudaBadInput, VersionsOfOneMinorReleaseAreInterchangeable) {
  check_version("NCCL", 22800, 22803);
  EXPECT_THAT(error_of([] { check_version("NCCL", 22705, 22803); }),
              HasSubstr("NCCL 2.27.5 was loaded, but this build needs 2.28.3 or newer; update NCCL"));
}

TEST_F(CudaBadInput, AGpuWithoutKernelsIsRefused) {
  emulated::capability = 75;
  EXPECT_EQ(error_of([] { context_on(cuda_device(1)); }),
            "cuda:1 has compute capability 7.5; Godwit needs 8.0 (Ampere) or newer; use another GPU or the CPU "
            "(--device)");
  emulated::capability = 80;
  EXPECT_EQ(error_of([] { context_on(cuda_device(1)); }),
            "cuda:1 has compute capability 8.0, but this build has kernels for 86,90 only; build with -D "
            "CMAKE_CUDA_ARCHITECTURES=80, or use another GPU (--device)");
  for (const int capability : {86, 89, 120}) {
    emulated::capability = capability;
    context_on(cuda_device(1));
  }
}

TEST_F(CudaBadInput, ArchitecturesAreReadAsCmakeMeansThem) {
  EXPECT_TRUE(runs_on("80-real", 86));
  EXPECT_FALSE(runs_on("80-real", 90)) << "no intermediate form";
  EXPECT_TRUE(runs_on("80-virtual", 90));
  EXPECT_FALSE(runs_on("86", 80));
  EXPECT_TRUE(runs_on("70-real,90a", 90));
  EXPECT_FALSE(runs_on("70-real,90a", 100));
  EXPECT_TRUE(runs_on("100f-real", 103));
  EXPECT_TRUE(runs_on("native", 75));
}

TEST_F(CudaBadInput, AGpuInExclusiveUseByAnotherProcessIsRefused) {
  emulated::exclusive = true;
  EXPECT_THAT(error_of([] { context_on(cuda_device(1)); }),
              ::testing::AllOf(HasSubstr("cuda:1 is used by another process"), HasSubstr("--device cuda:N")));
}

TEST_F(CudaBadInput, GpusWithoutPeerAccessAreNamed) {
  emulated::peers = false;
  const auto body = [](Communicator& comm) { comm.world->all_reduce(Tensor::full({8}, 1), Reduce::sum, "test"); };
  EXPECT_THAT(
      error_of([&] {
        run_local({2, 1}, body, {.placement = {"cuda", false, /*nccl=*/false}});
      }),
      ::testing::ContainsRegex("cuda:[01] cannot read the memory of cuda:[01]; exchange through NCCL \\(--set "
                               "nccl=true, in a build that has it\\), or share one GPU \\(--device cuda:[01]\\)"));
}

TEST_F(CudaBadInput, OutOfMemoryErrorsStateFreeMemoryAndARemedy) {
  on_gpu([] { Tensor({1 << 20}, DType::u8); });
  emulated::total_bytes = emulated::used_bytes() + (16 << 20);
  on_gpu([] {
    EXPECT_THAT(
        error_of([] { Tensor({100 << 20}, DType::u8); }),
        ::testing::AllOf(
            HasSubstr("out of memory: 104857600 bytes requested"), ::testing::ContainsRegex(", [0-9]+ free of [0-9]+"),
            HasSubstr(" on cuda:0; lower --batch or the number of ranks on this GPU, or choose a smaller model")));
  });
  // The context's first segment of 8 MiB leaves nothing for cuDNN.
  emulated::total_bytes = emulated::used_bytes() + (8 << 20) + 1000;
  EXPECT_THAT(error_of(convolve_once),
              ::testing::AllOf(HasSubstr("cudnnCreate failed"), HasSubstr("1000 bytes of "),
                               HasSubstr(" are free on cuda:0; lower --batch or the number of ranks on this GPU")));
}

}  // namespace cuda_bad_input_test
}  // namespace godwit
