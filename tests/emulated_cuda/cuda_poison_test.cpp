// Released memory is NaN. Its use by another stream is a race.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>

#include "comm/transport/peer_memory.h"
#include "engine/host_memory.h"
#include "engine/stream.h"
#include "tests/emulated_cuda/races.h"
#include "tests/on_gpu.h"

namespace godwit {
namespace cuda_poison_test {

class CudaPoison : public OnGpu {
 protected:
  void SetUp() override {
    setenv("GODWIT_EMULATED_STREAMS", "3", 1);
    setenv("GODWIT_POISON", "1", 1);
    emulated::on_race = [this](const std::string& text) { races_ += text; };
    OnGpu::SetUp();
  }
  void TearDown() override {
    gpu_.reset();
    emulated::on_race = nullptr;
    unsetenv("GODWIT_POISON");
    unsetenv("GODWIT_EMULATED_STREAMS");
  }

  std::string races_;
};

// Reads 4 numbers at an address on the GPU, without a handle that keeps the memory.
double read(const void* from) {
  const Tensor y({4});
  copy_bytes(cuda_of(y.device()), from, y.address(), y.bytes());
  return y.item(3);
}

TEST_F(CudaPoison, ReleasedGpuMemoryIsNan) {
  on_gpu([] {
    auto x = std::make_unique<Tensor>(Tensor::full({4}, 3));
    const void* const address = x->address();
    EXPECT_EQ(read(address), 3);
    x.reset();
    EXPECT_TRUE(std::isnan(read(address)));
  });
  EXPECT_EQ(races_, "");
}

TEST_F(CudaPoison, IsInactiveByDefault) {
  unsetenv("GODWIT_POISON");
  const ContextGuard guard(context_on(cuda_device(0)));
  auto x = std::make_unique<Tensor>(Tensor::full({4}, 3));
  const void* const address = x->address();
  x.reset();
  EXPECT_EQ(read(address), 3);
}

TEST_F(CudaPoison, ReleasedPageLockedMemoryIsNan) {
  on_gpu([] {
    const Tensor x = Tensor::full({4}, 3);
    auto here = std::make_unique<Tensor>(host_memory(cuda_of(x.device()), x));
    const float* const values = here->data<float>();
    here->copy_from(x);
    EXPECT_EQ(values[3], 3);
    here.reset();
    EXPECT_TRUE(std::isnan(values[3]));
  });
}

TEST_F(CudaPoison, ReleaseBeforeAnotherStreamHasReadIsARace) {
  for (const bool wait : {true, false}) {
    races_.clear();
    on_gpu([&] {
      Stream other;
      const Tensor y({4});
      auto x = std::make_unique<Tensor>(Tensor::full({4}, 3));
      other.submit([from = x->address(), y] { copy_bytes(cuda_of(y.device()), from, y.address(), y.bytes()); });
      if (wait) other.wait();
      x.reset();
      other.wait();
      synchronize();
    });
    if (wait) EXPECT_EQ(races_, "");
    else
      EXPECT_THAT(races_,
                  testing::AllOf(testing::HasSubstr("by a copy on the GPU"), testing::HasSubstr("by a memset")));
  }
}

}  // namespace cuda_poison_test
}  // namespace godwit
