// threads_per_rank reaches what computes: Godwit's own loops and the kernel library's.
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
namespace {

// Threads this process has now; OpenMP keeps those of a team waiting until the thread that made it ends.
int64_t tasks() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

// How many threads `work` adds to the rank that does it. Those of an earlier team may end meanwhile, which only lowers
// the count: the largest of some attempts.
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

TEST(Threads, ReachLoopsAndKernelLibrary) {
#ifdef _OPENMP
  const std::vector<int> counts{1, 2, 3};
#else
  const std::vector<int> counts{1};
#endif
  for (const int threads : counts) {
    EXPECT_EQ(added(threads, [] { ops::relu(Var(Tensor::zeros({1 << 20}))); }), threads - 1) << "a loop of our own";
    const auto convolve = [] {
      const Var x(Tensor::zeros({8, 32, 32, 16})), w(Tensor::zeros({32, 3, 3, 16}));
      ops::conv2d(x, w, {.padding = 1});
    };
    EXPECT_EQ(added(threads, convolve), threads - 1) << "a convolution";
  }
}

}  // namespace
}  // namespace godwit
