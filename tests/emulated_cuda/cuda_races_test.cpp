// Deliberate races, each with a correct variant. This file is compiled like a kernel (CMakeLists.txt).
#include <gmock/gmock.h>

#include <cstdlib>
#include <vector>

#include "tests/emulated_cuda/cuda_runtime_api.h"
#include "tests/emulated_cuda/races.h"

namespace godwit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr unsigned kBlocks = 2, kThreads = 64;

class EmulatedRaces : public ::testing::Test {
 protected:
  EmulatedRaces() {
    setenv("GODWIT_EMULATED_STREAMS", "3", 1);
    emulated::on_race = [this](const std::string& text) {
      if (found_.empty()) found_ = text;
    };
    for (cudaStream_t* const stream : {&one_, &two_}) cudaStreamCreateWithPriority(stream, 0, 0);
    cudaEventCreateWithFlags(&event_, 0);
    cudaMalloc(reinterpret_cast<void**>(&memory_), kBlocks * kThreads * sizeof(int));
    cudaMemsetAsync(memory_, 0, kBlocks * kThreads * sizeof(int), one_);
    cudaStreamSynchronize(one_);
  }
  ~EmulatedRaces() override {
    cudaFree(memory_);
    cudaEventDestroy(event_);
    cudaStreamDestroy(one_);
    cudaStreamDestroy(two_);
    emulated::on_race = nullptr;
    unsetenv("GODWIT_EMULATED_STREAMS");
  }

  void launch(void (*kernel)(bool, int*), bool flag, cudaStream_t stream, bool cooperative = false) {
    cudaLaunchAttribute together{cudaLaunchAttributeCooperative, {cooperative}};
    const cudaLaunchConfig_t config{
        .gridDim = kBlocks, .blockDim = kThreads, .stream = stream, .attrs = &together, .numAttrs = 1};
    ASSERT_EQ(cudaLaunchKernelEx(&config, kernel, flag, memory_), cudaSuccess);
  }
  // The first race of a kernel; "" if there is none.
  std::string race(void (*kernel)(bool, int*), bool flag, bool cooperative = false) {
    launch(kernel, flag, one_, cooperative);
    return awaited();
  }
  std::string awaited() {
    cudaDeviceSynchronize();
    return std::exchange(found_, "");
  }

  cudaStream_t one_ = nullptr, two_ = nullptr;
  cudaEvent_t event_ = nullptr;
  int* memory_ = nullptr;

 private:
  std::string found_;
};

// Each thread reads its neighbor's value.
void neighbor_kernel(bool barrier, int* to) {
  __shared__ int values[kThreads];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (barrier) __syncthreads();
  to[blockIdx.x * kThreads + threadIdx.x] = values[(threadIdx.x + 1) % kThreads];
}

TEST_F(EmulatedRaces, InSharedMemoryWithoutABarrier) {
  EXPECT_EQ(race(neighbor_kernel, true), "");
  constexpr const char* kName = "godwit::(anonymous namespace)::neighbor_kernel(bool, int*) at cuda_races_test.cpp";
  const std::string text = race(neighbor_kernel, false);
  EXPECT_THAT(text, HasSubstr(std::string("of shared memory:\n  read by ") + kName + " in stream "));
  EXPECT_THAT(text, HasSubstr(std::string(", block 0, thread 0, in ") + kName + "\n    queued in "));
  EXPECT_THAT(text, HasSubstr("EmulatedRaces::launch")) << "the host's call";
  EXPECT_THAT(text, HasSubstr(std::string("\n  write by ") + kName + " in stream "));
  EXPECT_THAT(text, HasSubstr(std::string(", block 0, thread 1, in ") + kName + "\n    queued in "));
}

// Overwrites a value that other threads have read.
void reuse_kernel(bool barrier, int* to) {
  __shared__ int value;
  if (threadIdx.x == 40) value = 1;
  __syncthreads();
  const int seen = value;
  if (barrier) __syncthreads();
  if (threadIdx.x == 40) value = 2;
  to[blockIdx.x * kThreads + threadIdx.x] = seen;
}

TEST_F(EmulatedRaces, InSharedMemoryThatIsReusedTooEarly) {
  EXPECT_EQ(race(reuse_kernel, true), "");
  EXPECT_THAT(race(reuse_kernel, false), AllOf(HasSubstr("\n  read by "), HasSubstr("\n  write by ")));
}

// Exchanges values within each warp.
void warp_kernel(bool barrier, int* to) {
  __shared__ int values[kThreads];
  values[threadIdx.x] = 1;
  if (barrier) __syncwarp();
  else __shfl_xor_sync(~0u, 1, 1);
  to[blockIdx.x * kThreads + threadIdx.x] = values[threadIdx.x ^ 1];
}

TEST_F(EmulatedRaces, InAWarpThatOnlyExchangesRegisters) {
  EXPECT_EQ(race(warp_kernel, true), "");
  EXPECT_THAT(race(warp_kernel, false), HasSubstr("of shared memory"));
}

// Exchanges values between warps.
void warps_kernel(bool barrier, int* to) {
  __shared__ int values[kThreads];
  values[threadIdx.x] = 1;
  if (barrier) __syncthreads();
  else __syncwarp();
  to[blockIdx.x * kThreads + threadIdx.x] = values[threadIdx.x ^ 32];
}

TEST_F(EmulatedRaces, BetweenWarpsThatOnlyWaitForThemselves) {
  EXPECT_EQ(race(warps_kernel, true), "");
  EXPECT_THAT(race(warps_kernel, false), HasSubstr("of shared memory"));
}

// Both blocks count at the same address.
void count_kernel(bool atomic, int* to) {
  if (threadIdx.x != 0) return;
  if (atomic) atomicAdd(to, 1);
  else *to += 1;
}

TEST_F(EmulatedRaces, BetweenBlocks) {
  EXPECT_EQ(race(count_kernel, true), "");
  EXPECT_THAT(race(count_kernel, false), AllOf(HasSubstr("race on byte 0 of 512 bytes of device memory"),
                                               HasSubstr("block 0"), HasSubstr("block 1")));
}

// Each thread reads a value of the other block.
void grid_kernel(bool barrier, int* to) {
  to[blockIdx.x * kThreads + threadIdx.x] = 1;
  if (barrier) emulated::grid_barrier();
  else __syncthreads();
  const int seen = to[(1 - blockIdx.x) * kThreads + threadIdx.x];
  emulated::grid_barrier();
  to[blockIdx.x * kThreads + threadIdx.x] = seen;
}

TEST_F(EmulatedRaces, BetweenBlocksThatOnlyWaitForThemselves) {
  EXPECT_EQ(race(grid_kernel, true, true), "");
  EXPECT_THAT(race(grid_kernel, false, true), AllOf(HasSubstr("of device memory"), HasSubstr("\n  read by "),
                                                    HasSubstr("block 0"), HasSubstr("block 1")));
}

void mixed_kernel(bool atomic, int* to) {
  if (threadIdx.x == 0 && blockIdx.x == 0) atomicAdd(to, 1);
  if (threadIdx.x == 0 && blockIdx.x == 1) atomic ? atomicAdd(to, 1) : * to = 1;
}

TEST_F(EmulatedRaces, BetweenAtomicAndOtherAccesses) {
  EXPECT_EQ(race(mixed_kernel, true), "");
  EXPECT_THAT(race(mixed_kernel, false), HasSubstr("atomic access by"));
}

// Each thread writes one byte, or two bytes that overlap those of its neighbors.
void byte_kernel(bool apart, int* to) {
  auto* const bytes = reinterpret_cast<char*>(to) + blockIdx.x * kThreads + threadIdx.x;
  *bytes = 1;
  if (!apart && threadIdx.x + 1 < kThreads) bytes[1] = 2;
}

TEST_F(EmulatedRaces, OnBytesOfAWord) {
  EXPECT_EQ(race(byte_kernel, true), "");
  EXPECT_THAT(race(byte_kernel, false), HasSubstr("device memory"));
}

// Reads values that one thread copies asynchronously.
void copy_kernel(bool wait, int* to) {
  alignas(16) __shared__ int values[4];
  if (blockIdx.x > 0) return;
  if (threadIdx.x == 0) emulated::start_copy(values, to);
  if (wait) emulated::await_copies();
  __syncthreads();
  to[kThreads + threadIdx.x] = values[threadIdx.x % 4];
  if (!wait) emulated::await_copies();
}

TEST_F(EmulatedRaces, WithAnAsynchronousCopy) {
  EXPECT_EQ(race(copy_kernel, true), "");
  EXPECT_THAT(race(copy_kernel, false), HasSubstr("of shared memory"));
}

void fill_kernel(bool, int* to) { to[blockIdx.x * kThreads + threadIdx.x] = 1; }

TEST_F(EmulatedRaces, BetweenStreams) {
  std::vector<int> here(kBlocks * kThreads);
  const auto read = [&] {
    cudaMemcpyAsync(here.data(), memory_, here.size() * sizeof(int), cudaMemcpyDeviceToHost, two_);
    return awaited();
  };
  launch(fill_kernel, true, one_);
  cudaEventRecord(event_, one_);
  cudaStreamWaitEvent(two_, event_, 0);
  EXPECT_EQ(read(), "") << "ordered by an event";
  launch(fill_kernel, true, one_);
  cudaStreamSynchronize(one_);
  EXPECT_EQ(read(), "") << "ordered by the host";
  launch(fill_kernel, true, one_);
  const std::string race = read();
  EXPECT_THAT(race, AllOf(HasSubstr("\n  write by godwit::(anonymous namespace)::fill_kernel(bool, int*)"),
                          HasSubstr("\n  read by a copy to the host in stream ")));
}

TEST_F(EmulatedRaces, WithAnEventRecordedTooEarly) {
  cudaEventRecord(event_, one_);
  launch(fill_kernel, true, one_);
  cudaStreamWaitEvent(two_, event_, 0);
  launch(fill_kernel, true, two_);
  EXPECT_THAT(awaited(), HasSubstr("fill_kernel"));
}

TEST_F(EmulatedRaces, EndTheProcess) {
  emulated::on_race = nullptr;
  EXPECT_DEATH(race(neighbor_kernel, false), "emulated GPU: race on byte");
}

void shift_kernel(bool far, int* to) { to[blockIdx.x * kThreads + threadIdx.x] = 1 << (far ? 40 : 4); }
void misaligned_kernel(bool aligned, int* to) {
  if (blockIdx.x + threadIdx.x == 0) *reinterpret_cast<int*>(reinterpret_cast<char*>(to) + (aligned ? 4 : 2)) = 1;
}

TEST_F(EmulatedRaces, UndefinedBehaviorEndsTheProcessToo) {
  EXPECT_EQ(race(shift_kernel, false), "");
  EXPECT_DEATH(race(shift_kernel, true), "shift exponent 40 is too large");
  EXPECT_EQ(race(misaligned_kernel, true), "");
  EXPECT_DEATH(race(misaligned_kernel, false), "misaligned address");
}

}  // namespace
}  // namespace godwit
