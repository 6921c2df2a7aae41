// The fake NCCL behaves like a nonblocking communicator: calls complete late, and work waits for all ranks.
#include <gmock/gmock.h>

#include <cstdlib>
#include <thread>

#include "tests/emulated_cuda/cuda_runtime_api.h"
#include "tests/emulated_cuda/nccl.h"
#include "tests/emulated_cuda/streams.h"

namespace godwit {
namespace cuda_nccl_test {

constexpr size_t kNumbers = 3;

// Two ranks of one thread, each with its GPU. The parameter is the seed of deferred streams, or 0.
class EmulatedNccl : public ::testing::TestWithParam<int> {
 protected:
  struct Rank {
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    float *data = nullptr, *host = nullptr;
  };

  EmulatedNccl() {
    setenv("GODWIT_EMULATED_STREAMS", std::to_string(GetParam()).c_str(), 1);
    for (int r = 0; r < 2; ++r) {
      Rank& rank = ranks_[r];
      cudaSetDevice(r);
      cudaStreamCreateWithPriority(&rank.stream, 0, 0);
      cudaMalloc(reinterpret_cast<void**>(&rank.data), kNumbers * sizeof(float));
      cudaHostAlloc(reinterpret_cast<void**>(&rank.host), kNumbers * sizeof(float), 0);
      for (size_t i = 0; i < kNumbers; ++i) rank.host[i] = static_cast<float>(10 * r + static_cast<int>(i));
      cudaMemcpyAsync(rank.data, rank.host, kNumbers * sizeof(float), cudaMemcpyHostToDevice, rank.stream);
      cudaStreamSynchronize(rank.stream);
    }
    connect(1);
  }
  ~EmulatedNccl() override {
    for (const Rank& rank : ranks_)
      if (rank.comm) ncclCommAbort(rank.comm);
    for (const Rank& rank : ranks_) {
      cudaFree(rank.data);
      cudaFreeHost(rank.host);
      cudaStreamDestroy(rank.stream);
    }
    cudaSetDevice(0);
    unsetenv("GODWIT_EMULATED_STREAMS");
  }

  void connect(int second_device) {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    for (int r = 0; r < 2; ++r) {
      cudaSetDevice(r == 0 ? 0 : second_device);
      EXPECT_EQ(ncclCommInitRankConfig(&ranks_[r].comm, 2, id, r, &config), ncclInProgress);
    }
    for (int r = 0; r < 2; ++r) succeeded_ = state_after_polls(r);
  }
  // The state once it is not ncclInProgress.
  ncclResult_t state_after_polls(int r) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) EXPECT_EQ(ncclCommGetAsyncError(ranks_[r].comm, &state), ncclSuccess);
    return state;
  }
  ncclResult_t sum(int r, size_t count = kNumbers) {
    const Rank& rank = ranks_[r];
    return ncclAllReduce(rank.data, rank.data, count, ncclFloat32, ncclSum, rank.comm, rank.stream);
  }
  // The last number of a rank, after all work in its stream.
  float last(int r) {
    const Rank& rank = ranks_[r];
    cudaMemcpyAsync(rank.host, rank.data, kNumbers * sizeof(float), cudaMemcpyDeviceToHost, rank.stream);
    cudaStreamSynchronize(rank.stream);
    return rank.host[kNumbers - 1];
  }

  Rank ranks_[2];
  ncclResult_t succeeded_ = ncclSuccess;
};
INSTANTIATE_TEST_SUITE_P(Streams, EmulatedNccl, ::testing::Values(0, 3, 4, 5));

TEST_P(EmulatedNccl, CollectivesRunInTheOrderOfTheStreams) {
  EXPECT_EQ(succeeded_, ncclSuccess);
  for (int step = 0; step < 2; ++step)
    for (int r = 0; r < 2; ++r) {
      EXPECT_EQ(sum(r), ncclInProgress);
      EXPECT_EQ(state_after_polls(r), ncclSuccess);
    }
  for (int r = 0; r < 2; ++r) EXPECT_EQ(last(r), 2 * (2 + 12));
}

TEST_P(EmulatedNccl, WorkEntersTheStreamOnlyWhenTheCallHasSucceeded) {
  for (int r = 0; r < 2; ++r) sum(r);
  EXPECT_EQ(last(0), 2) << "the host has not polled";
  for (int r = 0; r < 2; ++r) EXPECT_EQ(state_after_polls(r), ncclSuccess);
  EXPECT_EQ(last(0), 2 + 12);
}

TEST_P(EmulatedNccl, StreamsWaitForAllRanks) {
  sum(0);
  state_after_polls(0);
  cudaMemsetAsync(ranks_[0].data, 0, kNumbers * sizeof(float), ranks_[0].stream);
  for (int poll = 0; poll < 20; ++poll) EXPECT_EQ(cudaStreamQuery(ranks_[0].stream), cudaErrorNotReady);
  sum(1);
  state_after_polls(1);
  EXPECT_EQ(last(0), 0) << "work behind the collective";
  EXPECT_EQ(last(1), 2 + 12);
}

TEST_P(EmulatedNccl, AnAbortEndsTheWaiting) {
  sum(0);
  state_after_polls(0);
  EXPECT_EQ(cudaStreamQuery(ranks_[0].stream), cudaErrorNotReady);
  ncclCommAbort(std::exchange(ranks_[0].comm, nullptr));
  EXPECT_EQ(last(0), 2) << "unchanged";
}

template <int>
void new_kernel(float* to) {
  if (threadIdx.x == 0) to[0] = 1;
}

// Launches a kernel for the first time on a stream of rank 0's GPU.
void load_kernel(void (*kernel)(float*), float* to) {
  cudaStream_t stream = nullptr;
  cudaSetDevice(0);
  cudaStreamCreateWithPriority(&stream, 0, 0);
  const cudaLaunchConfig_t config{.gridDim = 1, .blockDim = 1, .stream = stream};
  EXPECT_EQ(cudaLaunchKernelEx(&config, kernel, to), cudaSuccess);
  cudaStreamDestroy(stream);
}

TEST_P(EmulatedNccl, LoadingAKernelWaitsForCollectives) {
  float* memory = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&memory), sizeof(float));
  sum(0);
  state_after_polls(0);
  EXPECT_EQ(cudaStreamQuery(ranks_[0].stream), cudaErrorNotReady);
  emulated::loading_limit = std::chrono::milliseconds(100);
  EXPECT_DEATH(load_kernel(new_kernel<0>, memory), "it cannot be loaded while a collective waits for other ranks");
  emulated::loading_limit = std::chrono::milliseconds(20'000);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    sum(1);
    state_after_polls(1);
  });
  load_kernel(new_kernel<1>, memory);
  other.join();
  EXPECT_EQ(last(0), 2 + 12);
  cudaFree(memory);
}

TEST_P(EmulatedNccl, RefusesDifferentCollectives) {
  sum(0);
  EXPECT_EQ(state_after_polls(0), ncclSuccess);
  sum(1, kNumbers - 1);
  EXPECT_EQ(state_after_polls(1), ncclInvalidUsage);
  EXPECT_EQ(state_after_polls(0), ncclInvalidUsage);
  EXPECT_STREQ(ncclGetLastError(ranks_[0].comm), "ranks 1 and 0 called different collectives");
}

TEST_P(EmulatedNccl, RefusesACallBeforeTheLastOneHasSucceeded) {
  EXPECT_EQ(sum(0), ncclInProgress);
  EXPECT_EQ(sum(0), ncclInvalidUsage);
}

TEST_P(EmulatedNccl, RefusesTwoRanksOfOneGpu) {
  for (Rank& rank : ranks_) ncclCommAbort(rank.comm);
  connect(0);
  EXPECT_EQ(succeeded_, ncclInvalidUsage);
}

TEST_P(EmulatedNccl, GroupsExchangeMessages) {
  for (int r = 0; r < 2; ++r) {
    const Rank& rank = ranks_[r];
    ncclGroupStart();
    EXPECT_EQ(ncclSend(rank.data, kNumbers, ncclFloat32, 1 - r, rank.comm, rank.stream), ncclSuccess);
    EXPECT_EQ(ncclRecv(rank.data, kNumbers, ncclFloat32, 1 - r, rank.comm, rank.stream), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
    EXPECT_EQ(state_after_polls(r), ncclSuccess);
  }
  EXPECT_EQ(last(0), 12);
  EXPECT_EQ(last(1), 2);
}

}  // namespace cuda_nccl_test
}  // namespace godwit
