// Deferred streams reveal work that neither a stream nor an event orders, and host code that does not wait.
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

#include "tests/emulated_cuda/cuda_runtime_api.h"
#include "tests/support.h"

namespace godwit {
namespace cuda_streams_test {

constexpr int kNumbers = 64;
constexpr size_t kBytes = kNumbers * sizeof(int);

void count_kernel(int first, int* to) { to[threadIdx.x] = first + static_cast<int>(threadIdx.x); }

// Two streams, and memory of `kNumbers` numbers on the GPU and page-locked on the host.
struct Lab {
  cudaStream_t one = nullptr, two = nullptr;
  cudaEvent_t event = nullptr;
  int *there = nullptr, *copy = nullptr, *host = nullptr;

  Lab() {
    cudaStreamCreateWithPriority(&one, 0, 0);
    cudaStreamCreateWithPriority(&two, 0, 0);
    cudaEventCreateWithFlags(&event, 0);
    cudaMalloc(reinterpret_cast<void**>(&there), kBytes);
    cudaMalloc(reinterpret_cast<void**>(&copy), kBytes);
    cudaHostAlloc(reinterpret_cast<void**>(&host), kBytes, 0);
  }
  ~Lab() {
    cudaFree(there);
    cudaFree(copy);
    cudaFreeHost(host);
    cudaEventDestroy(event);
    cudaStreamDestroy(one);
    cudaStreamDestroy(two);
  }
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  static void count(int first, int* to, cudaStream_t stream) {
    const cudaLaunchConfig_t config{.gridDim = 1, .blockDim = kNumbers, .stream = stream};
    EXPECT_EQ(cudaLaunchKernelEx(&config, count_kernel, first, to), cudaSuccess);
  }
  static void move(const void* from, void* to, cudaMemcpyKind kind, cudaStream_t stream) {
    EXPECT_EQ(cudaMemcpyAsync(to, from, kBytes, kind, stream), cudaSuccess);
  }
  // The last of the numbers at `from`, read on the stream.
  int last(const int* from, cudaStream_t stream) const {
    move(from, host, cudaMemcpyDeviceToHost, stream);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    return host[kNumbers - 1];
  }
};

// The results of f(lab) with several orders of deferred work, and without deferral.
template <class F>
std::set<int> results(F&& f) {
  std::set<int> all;
  for (int seed = 0; seed < 9; ++seed) {
    setenv("GODWIT_EMULATED_STREAMS", std::to_string(seed).c_str(), 1);
    all.insert(f(Lab()));
  }
  unsetenv("GODWIT_EMULATED_STREAMS");
  return all;
}

constexpr int kLast = kNumbers - 1, kNan = -1;  // the bytes of NaN, read as an integer
using Set = std::set<int>;

TEST(EmulatedStreams, RevealAMissingEvent) {
  const auto copied = [](bool ordered) {
    return results([=](const Lab& lab) {
      Lab::count(0, lab.there, lab.one);
      if (ordered) {
        cudaEventRecord(lab.event, lab.one);
        cudaStreamWaitEvent(lab.two, lab.event, 0);
      }
      Lab::move(lab.there, lab.copy, cudaMemcpyDeviceToDevice, lab.two);
      return lab.last(lab.copy, lab.two);
    });
  };
  EXPECT_EQ(copied(true), Set{kLast});
  EXPECT_EQ(copied(false), (Set{kLast, kNan}));
}

TEST(EmulatedStreams, RevealAnEventRecordedTooEarly) {
  const auto overwritten = [](bool early) {
    return results([=](const Lab& lab) {
      Lab::count(0, lab.there, lab.one);
      if (early) cudaEventRecord(lab.event, lab.one);
      Lab::move(lab.there, lab.copy, cudaMemcpyDeviceToDevice, lab.one);
      if (!early) cudaEventRecord(lab.event, lab.one);
      cudaStreamWaitEvent(lab.two, lab.event, 0);
      Lab::count(100, lab.there, lab.two);
      cudaStreamSynchronize(lab.two);
      return lab.last(lab.copy, lab.one);
    });
  };
  EXPECT_EQ(overwritten(false), Set{kLast});
  EXPECT_EQ(overwritten(true), (Set{kLast, 100 + kLast}));
}

TEST(EmulatedStreams, RevealHostsThatReadBeforeTheCopy) {
  const auto read = [](bool wait) {
    return results([=](const Lab& lab) {
      Lab::count(0, lab.there, lab.one);
      Lab::move(lab.there, lab.host, cudaMemcpyDeviceToHost, lab.one);
      cudaEventRecord(lab.event, lab.one);
      if (wait) cudaEventSynchronize(lab.event);
      return lab.host[kLast];
    });
  };
  EXPECT_EQ(read(true), Set{kLast});
  EXPECT_EQ(read(false), (Set{kLast, kNan}));
}

TEST(EmulatedStreams, RevealHostsThatReusePageLockedMemoryTooEarly) {
  const auto reused = [](bool wait) {
    return results([=](const Lab& lab) {
      lab.host[kLast] = 5;
      Lab::move(lab.host, lab.there, cudaMemcpyHostToDevice, lab.one);
      while (wait && cudaStreamQuery(lab.one) == cudaErrorNotReady) continue;
      lab.host[kLast] = 6;
      return lab.last(lab.there, lab.one);
    });
  };
  EXPECT_EQ(reused(true), Set{5});
  EXPECT_EQ(reused(false), (Set{5, 6}));
}

TEST(EmulatedStreams, PageableMemoryIsReadAndWrittenBeforeTheCallReturns) {
  EXPECT_EQ(results([](const Lab& lab) {
              std::vector<int> here(kNumbers, 5);
              Lab::move(here.data(), lab.there, cudaMemcpyHostToDevice, lab.one);
              here.assign(kNumbers, 6);
              Lab::move(lab.there, here.data(), cudaMemcpyDeviceToHost, lab.one);
              return here[kLast];
            }),
            Set{5});
}

TEST(EmulatedStreams, DeviceSynchronizationAndFreeWaitForAllStreams) {
  EXPECT_EQ(results([](const Lab& lab) {
              Lab::count(0, lab.there, lab.one);
              Lab::move(lab.there, lab.host, cudaMemcpyDeviceToHost, lab.one);
              cudaDeviceSynchronize();
              const int first = lab.host[kLast];
              void* other = nullptr;
              cudaMalloc(&other, 1);
              Lab::count(100, lab.there, lab.two);
              Lab::move(lab.there, lab.host, cudaMemcpyDeviceToHost, lab.two);
              cudaFree(other);
              return 1000 * first + lab.host[kLast];
            }),
            Set{1000 * kLast + 100 + kLast});
}

TEST(EmulatedStreams, OrderWorkOfSeveralThreads) {
  EXPECT_EQ(results([](const Lab& lab) {
              Lab::count(0, lab.there, lab.one);
              cudaEventRecord(lab.event, lab.one);
              std::thread([&] {
                cudaStreamWaitEvent(lab.two, lab.event, 0);
                Lab::move(lab.there, lab.copy, cudaMemcpyDeviceToDevice, lab.two);
                cudaEventRecord(lab.event, lab.two);
              }).join();
              cudaStreamWaitEvent(lab.one, lab.event, 0);
              Lab::count(100, lab.there, lab.one);
              return lab.last(lab.copy, lab.one);
            }),
            Set{kLast});
}

TEST(EmulatedStreams, GraphsAreDeferredToo) {
  const auto replayed = [](bool wait) {
    return results([=](const Lab& lab) {
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t exec = nullptr;
      cudaStreamBeginCapture(lab.one, cudaStreamCaptureModeThreadLocal);
      Lab::count(0, lab.there, lab.one);
      Lab::move(lab.there, lab.host, cudaMemcpyDeviceToHost, lab.one);
      cudaStreamEndCapture(lab.one, &graph);
      cudaGraphInstantiate(&exec, graph, 0);
      cudaGraphDestroy(graph);
      cudaGraphLaunch(exec, lab.one);
      cudaGraphExecDestroy(exec);  // the launched graph stays alive
      if (wait) cudaStreamSynchronize(lab.one);
      return lab.host[kLast];
    });
  };
  EXPECT_EQ(replayed(true), Set{kLast});
  EXPECT_EQ(replayed(false), (Set{kLast, kNan}));
}

TEST(EmulatedStreams, ReportErrorsOfQueuedWorkWhenTheHostWaits) {
  setenv("GODWIT_EMULATED_STREAMS", "3", 1);
  const Lab lab;
  EXPECT_EQ(emulated::give(lab.one, {"a failure"}, [] { return cudaErrorInvalidValue; }), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(lab.one), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamSynchronize(lab.one), cudaSuccess);
  unsetenv("GODWIT_EMULATED_STREAMS");
}

}  // namespace cuda_streams_test
}  // namespace godwit
