// threads_per_rank applies to Godwit's loops and to the kernel library.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>

#include "autograd/ops/convolution/conv2d.h"
#include "autograd/ops/relu.h"
#include "comm/transport/local.h"
#include "engine/context.h"

namespace godwit {
namespace threads_test {

// Current number of threads of this process. OpenMP keeps the idle threads of a team until the thread that created it
// ends.
int64_t tasks() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

// The number of threads that `work` starts: the largest of several attempts, because threads of an earlier team may end
// meanwhile and lower a count.
template <class F>
int64_t added(int threads, F&& work) {
  int64_t most = -1;
  const auto body = [&](Communicator&) {
    const int64_t before = tasks();
    work();
    most = std::max(most, tasks() - before);
  };
  for (int attempt = 0; attempt < 10; ++attempt) {
    run_local({1, 1}, body, {.threads_per_rank = threads});
    if (most >= threads - 1) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return most;
}

TEST(Threads, ApplyToLoopsAndKernelLibrary) {
#ifdef _OPENMP
  const std::vector<int> counts{1, 2, 3};
#else
  const std::vector<int> counts{1};
#endif
  for (const int threads : counts) {
    EXPECT_EQ(added(threads, [] { ops::relu(Var(Tensor::zeros({1 << 20}))); }), threads - 1) << "a loop of Godwit";
    const auto convolve = [] {
      const Var x(Tensor::zeros({8, 32, 32, 16})), w(Tensor::zeros({32, 3, 3, 16}));
      ops::conv2d(x, w, {.padding = 1});
    };
    EXPECT_EQ(added(threads, convolve), threads - 1) << "a convolution";
  }
}

}  // namespace threads_test
}  // namespace godwit
