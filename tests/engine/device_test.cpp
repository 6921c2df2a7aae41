#include "engine/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/context.h"
#include "engine/tensor.h"
#include "tests/support.h"

namespace godwit {
namespace device_test {

using ::testing::HasSubstr;

TEST(Device, ParsesAndPrints) {
  EXPECT_EQ(parse_device("cpu"), kCpu);
  EXPECT_EQ(parse_device("cuda"), cuda_device(0));
  EXPECT_EQ(parse_device("cuda", "--device", 3), cuda_device(3)) << "one GPU per local rank";
  EXPECT_EQ(parse_device("cuda:12", "--device", 3), cuda_device(12));
  EXPECT_EQ(parse_device("auto", "--device", 1), cuda_devices() > 0 ? cuda_device(1) : kCpu);
  EXPECT_EQ(::testing::PrintToString(kCpu), "cpu");
  EXPECT_EQ(::testing::PrintToString(cuda_device(1)), "cuda:1");
}

TEST(Device, RefusesUnknownNames) {
  for (const char* text : {"", "CPU", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "cuda:99999999999", "gpu", "cuda 1"})
    EXPECT_THAT(error_of([&] { parse_device(text, "--device"); }),
                AllOf(HasSubstr("--device: unknown device '" + std::string(text) + "'"), HasSubstr("cuda:N")));
}

TEST(Device, RefusesMissingDevicesWithTheReason) {
  EXPECT_EQ(cuda_devices() == 0, !why_no_cuda().empty());
  const Device beyond = cuda_device(cuda_devices());
  const std::string error = error_of([&] { context_on(beyond); });
  EXPECT_THAT(error, HasSubstr(::testing::PrintToString(beyond) + ": "));
  EXPECT_THAT(error, HasSubstr(cuda_devices() == 0 ? why_no_cuda() : "numbered from 0"));
  EXPECT_EQ(error_of([&] { Tensor({2}, DType::f32, beyond); }).empty(), false);
}

TEST(Device, TheCpuIsAlwaysAvailable) {
  const ContextGuard guard(context_on(kCpu));
  synchronize();
  const Tensor x = Tensor::full({3}, 2);
  EXPECT_EQ(x.device(), kCpu);
  EXPECT_TRUE(x.to(kCpu).same_memory(x));
  EXPECT_THAT(error_of([&] { x.cuda_data<float>(); }), HasSubstr("tensor [3] of float32 is on the CPU"));
}

}  // namespace device_test
}  // namespace godwit
