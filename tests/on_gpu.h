// Fixture for tests that need a GPU. Without a GPU, the tests are skipped with the reason.
#pragma once
#include <gtest/gtest.h>

#include <optional>

#include "engine/context.h"
#include "engine/tensor.h"

namespace godwit {

// The test's thread stays on the CPU. on_gpu(f) calls f with a context on the first GPU.
class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << why_no_cuda();
    gpu_ = context_on(cuda_device(0));
  }

  template <class F>
  auto on_gpu(F&& f) const {
    const ContextGuard guard(*gpu_);
    return f();
  }

  std::optional<Context> gpu_;
};

}  // namespace godwit
