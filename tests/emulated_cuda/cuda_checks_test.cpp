// Deliberate errors that the emulator must find: deadlocks, wrong addresses, reads of memory without a value, and calls
// during a capture.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulated_cuda/cuda_runtime_api.h"
#include "tests/emulated_cuda/emulated_tensor_cores.h"

namespace godwit {
namespace cuda_checks_test {

cudaError_t run(const std::function<void()>& thread, unsigned threads = 64) {
  return emulated::run_grid(dim3(2), dim3(threads), thread);
}

TEST(EmulatedBarriers, ThreadsThatWaitForEachOtherForeverEndTheProcess) {
  EXPECT_EQ(run([] { __syncthreads(), __syncwarp(); }), cudaSuccess);
  EXPECT_EQ(run([] { threadIdx.x < 32 ? __syncwarp() : __syncthreads(); }), cudaSuccess) << "whole warps may differ";
  EXPECT_DEATH(run([] { threadIdx.x % 2 == 0 ? __syncwarp() : __syncthreads(); }),
               "block 0 of 2: its threads wait at different barriers");
}

TEST(EmulatedBarriers, AThreadThatLeavesItsWarpEndsTheProcess) {
  EXPECT_EQ(run([] {
              if (threadIdx.x >= 32) __shfl_xor_sync(~0u, 1, 1);
            }),
            cudaSuccess)
      << "a whole warp may leave";
  EXPECT_DEATH(run([] {
                 if (threadIdx.x > 0) __shfl_xor_sync(~0u, 1, 1);
               }),
               "a thread ended while others of its warp exchange values");
}

// After a barrier of the grid, each thread reads a value that another block has written.
TEST(EmulatedBarriers, ABarrierOfTheGridWaitsForAllBlocks) {
  constexpr unsigned kBlocks = 4, kThreads = 64;
  std::vector<unsigned> values(kBlocks * kThreads), seen(values);
  const auto exchange = [&] {
    for (unsigned round = 1; round <= 3; ++round) {
      values[blockIdx.x * kThreads + threadIdx.x] = round * 1000 + blockIdx.x;
      emulated::grid_barrier();
      seen[blockIdx.x * kThreads + threadIdx.x] += values[(blockIdx.x + 1) % kBlocks * kThreads + threadIdx.x];
      emulated::grid_barrier();
    }
  };
  ASSERT_EQ(emulated::run_grid(dim3(kBlocks), dim3(kThreads), exchange, true), cudaSuccess);
  for (unsigned i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], 6000 + 3 * ((i / kThreads + 1) % kBlocks)) << i;
}

TEST(EmulatedBarriers, WrongBarriersOfTheGridEndTheProcess) {
  const auto run_together = [](const std::function<void()>& thread) {
    return emulated::run_grid(dim3(2), dim3(64), thread, true);
  };
  const auto if_true = [](bool waits) {
    if (waits) emulated::grid_barrier();
  };
  EXPECT_DEATH(run([] {
                 emulated::grid_barrier();
                 emulated::stop("a thread passed the barrier");
               }),
               "block 0 of 2: a barrier of the grid needs a cooperative launch");
  for (const unsigned ended : {0, 1})
    EXPECT_DEATH(run_together([&] { if_true(blockIdx.x != ended); }),
                 "block " + std::to_string(ended) + " of 2: it ended while other blocks wait for the grid");
  EXPECT_DEATH(run_together([&] { if_true(threadIdx.x < 32); }),
               "block 0 of 2: its threads wait at different barriers");
  EXPECT_DEATH(run_together([&] { threadIdx.x < 32 ? emulated::grid_barrier() : __syncthreads(); }),
               "block 0 of 2: its threads wait at different barriers");
  const auto run_barriers = [&](int count) {
    return run_together([&] {
      for (int i = 0; i < count; ++i) emulated::grid_barrier();
    });
  };
  EXPECT_EQ(run_barriers(255), cudaSuccess);
  EXPECT_DEATH(run_barriers(256), "the race detector counts at most 255 barriers of the grid");
}

TEST(EmulatedLaunches, CooperativeBlocksMustFitOnTheGpu) {
  const unsigned fit = 1536 / 256 * emulated::multiprocessors();
  const auto status = [](unsigned blocks) {
    return emulated::run_grid(
        dim3(blocks), dim3(256), [] {}, true);
  };
  EXPECT_EQ(status(fit), cudaSuccess);
  EXPECT_EQ(status(fit + 1), cudaErrorCooperativeLaunchTooLarge);
}

TEST(EmulatedLaunches, InvalidSizesAreRefused) {
  EXPECT_EQ(run([] {}, 1024), cudaSuccess);
  EXPECT_EQ(run([] {}, 1025), cudaErrorInvalidConfiguration);
  EXPECT_EQ(run([] {}, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(emulated::run_grid(dim3(0), dim3(1), [] {}), cudaErrorInvalidConfiguration);
}

// Memory of eight numbers on the GPU, and a stream.
class EmulatedMemory : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 8 * sizeof(float);

  EmulatedMemory() {
    cudaStreamCreateWithPriority(&stream_, 0, 0);
    cudaMalloc(reinterpret_cast<void**>(&there_), kBytes);
  }
  ~EmulatedMemory() override {
    cudaFree(there_);
    cudaStreamDestroy(stream_);
  }
  cudaError_t copy(const void* from, void* to, cudaMemcpyKind kind, size_t bytes = kBytes) const {
    return cudaMemcpyAsync(to, from, bytes, kind, stream_);
  }

  cudaStream_t stream_ = nullptr;
  float* there_ = nullptr;
  std::vector<float> here_ = std::vector<float>(16, 3);
};

TEST_F(EmulatedMemory, NewMemoryIsNan) {
  EXPECT_EQ(copy(there_, here_.data(), cudaMemcpyDeviceToHost), cudaSuccess);
  for (size_t i = 0; i < 8; ++i) EXPECT_TRUE(std::isnan(here_[i]));
  EXPECT_EQ(here_[8], 3);
}

TEST_F(EmulatedMemory, CopiesCheckOnWhichSideTheirMemoryIs) {
  EXPECT_EQ(copy(here_.data(), there_, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(copy(there_, here_.data(), cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(here_.data(), there_, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(copy(here_.data(), there_, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(copy(here_.data(), here_.data() + 8, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
}

TEST_F(EmulatedMemory, CopiesAndMemsetsBeyondTheEndAreRefused) {
  EXPECT_EQ(copy(here_.data(), there_ + 1, cudaMemcpyHostToDevice, kBytes - 4), cudaSuccess);
  EXPECT_EQ(copy(here_.data(), there_ + 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(there_ + 1, 0, kBytes - 4, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(there_ + 1, 0, kBytes, stream_), cudaErrorInvalidValue);
  constexpr size_t kRow = kBytes / 2;
  for (const size_t width : {kRow, kRow + 1})
    EXPECT_EQ(cudaMemcpy2DAsync(there_, kRow, there_, kRow, width, 2, cudaMemcpyDeviceToDevice, stream_),
              width == kRow ? cudaSuccess : cudaErrorInvalidValue);
}

TEST_F(EmulatedMemory, FreeingAnAddressTwiceIsRefused) {
  void* other = nullptr;
  cudaMalloc(&other, kBytes);
  EXPECT_EQ(cudaFree(other), cudaSuccess);
  EXPECT_EQ(cudaFree(other), cudaErrorInvalidValue);
}

// Between start and wait, the destination of an asynchronous copy is NaN.
TEST_F(EmulatedMemory, AsynchronousCopiesReadBeforeTheWaitGiveNan) {
  alignas(16) float from[4] = {1, 2, 3, 4}, to[4] = {};
  float early = 0, late = 0;
  EXPECT_EQ(emulated::run_grid(dim3(1), dim3(1),
                               [&] {
                                 emulated::start_copy(to, from);
                                 early = to[3];
                                 emulated::await_copies();
                                 late = to[3];
                               }),
            cudaSuccess);
  EXPECT_TRUE(std::isnan(early));
  EXPECT_EQ(late, 4);
}

TEST_F(EmulatedMemory, AsynchronousCopiesNeedAlignedAddresses) {
  alignas(16) float from[8] = {}, to[8] = {};
  const auto copied = [&](int offset) {
    return emulated::run_grid(dim3(1), dim3(1), [&] {
      copy_async(to, from + offset, true);
      emulated::await_copies();
    });
  };
  EXPECT_EQ(copied(4), cudaSuccess);
  EXPECT_DEATH(copied(1), "an asynchronous copy is not aligned to 16 bytes");
}

// Calls that a capture forbids fail where they are made, and invalidate the capture.
TEST_F(EmulatedMemory, ForbiddenCallsInvalidateACapture) {
  const auto captured = [&](const std::function<void()>& body, cudaStreamCaptureMode mode) {
    cudaGraph_t graph = nullptr;
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
    body();
    const cudaError_t status = cudaStreamEndCapture(stream_, &graph);
    cudaThreadExchangeStreamCaptureMode(&mode);
    if (graph) cudaGraphDestroy(graph);
    return status;
  };
  const auto allocate = [] {
    void* other = nullptr;
    if (cudaMalloc(&other, 1) == cudaSuccess) cudaFree(other);
  };
  const auto synchronize = [] { cudaDeviceSynchronize(); };
  constexpr auto kStrict = cudaStreamCaptureModeThreadLocal;
  EXPECT_EQ(captured([&] { cudaMemsetAsync(there_, 0, kBytes, stream_); }, kStrict), cudaSuccess);
  EXPECT_EQ(captured(allocate, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(captured([&] { std::thread(allocate).join(); }, kStrict), cudaSuccess);
  const std::vector<std::function<void()>> forbidden{allocate,
                                                     synchronize,
                                                     [&] { std::thread(synchronize).join(); },
                                                     [&] { cudaStreamSynchronize(stream_); },
                                                     [&] { cudaStreamQuery(stream_); },
                                                     [&] { cudaMemsetAsync(there_, 0, 0, stream_); }};
  for (const auto& body : forbidden) EXPECT_EQ(captured(body, kStrict), cudaErrorStreamCaptureInvalidated);
}

}  // namespace cuda_checks_test
}  // namespace godwit
