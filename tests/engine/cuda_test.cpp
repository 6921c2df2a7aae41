// Tensors on a GPU.
#include <gmock/gmock.h>

#include <limits>
#include <numeric>
#include <thread>

#include "engine/gpu.h"
#include "engine/stream.h"
#include "engine/event.h"
#include "tests/on_gpu.h"
#include "tests/support.h"

namespace godwit {
namespace cuda_test {

using ::testing::HasSubstr;

const Device kGpu = cuda_device(0);

class CudaTensor : public OnGpu {};

TEST_F(CudaTensor, IsAllocatedOnTheContextsDevice) {
  const std::vector<float> values{1, -2, 3.5f};
  const Tensor x = on_gpu([&] { return Tensor::of(values, {3}); });
  EXPECT_EQ(x.device(), kGpu);
  on_gpu([&] {
    EXPECT_EQ(x.to_vector<float>(), values);
    EXPECT_EQ(x.item(2), 3.5);
    EXPECT_EQ(Tensor({2}).device(), kGpu);
    EXPECT_EQ(Tensor({2}, DType::f32, kCpu).device(), kCpu);
    EXPECT_TRUE(x.to(kGpu).same_memory(x));
    EXPECT_EQ(x.to(kCpu).to_vector<float>(), values);
  });
}

TEST_F(CudaTensor, HostAccessIsRefused) {
  on_gpu([&] {
    const Tensor x = Tensor::zeros({2, 3});
    const std::string expected = "tensor [2, 3] of float32 is on cuda:0, but this operation runs only on the CPU";
    EXPECT_THAT(error_of([&] { x.data<float>(); }), HasSubstr(expected));
    EXPECT_THAT(error_of([&] { x.span<float>(); }), HasSubstr(expected));
    EXPECT_THAT(error_of([&] { x.raw(); }), HasSubstr(expected));
    EXPECT_THAT(error_of([&] { Tensor({1}, DType::f32, kCpu).cuda_data<float>(); }), HasSubstr("is on the CPU"));
    EXPECT_THAT(error_of([&] { check_like(x, x.to(kCpu), "add", "b"); }),
                HasSubstr("add: b is on cuda:0, expected on cpu"));
  });
}

TEST_F(CudaTensor, RefusesUseByAThreadOnAnotherDevice) {
  const Tensor x = on_gpu([] { return Tensor::zeros({4}); });
  EXPECT_THAT(error_of([&] { x.item(); }),
              HasSubstr("a tensor on cuda:0 was used by a thread whose context is on cpu"));
  EXPECT_THAT(error_of([&] { x.fill(1); }), HasSubstr("context_on(device)"));
}

TEST_F(CudaTensor, FillsEveryType) {
  on_gpu([&] {
    for (const DType type :
         {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::i64, DType::u8, DType::u32})
      for (const int64_t n : {0, 1, 7, 8, 33, 70001}) {
        const Tensor x({n}, type);
        x.fill(3);
        const Tensor here = x.to(kCpu).to(DType::f64);
        for (const double value : here.span<double>()) ASSERT_EQ(value, 3) << type << " " << n;
        x.zero();
        if (n > 0) {
          EXPECT_EQ(x.item(n - 1), 0);
        }
      }
  });
}

// Ranges that are not aligned to 16 bytes use the scalar path; neighboring elements must not change.
TEST_F(CudaTensor, FillingARangeKeepsItsNeighbors) {
  on_gpu([&] {
    for (const DType type : {DType::f32, DType::bf16, DType::f64, DType::u8})
      for (const int64_t begin : {0, 1, 2, 3, 4, 16})
        for (const int64_t count : {1, 5, 16, 37, 1000}) {
          const Tensor x = Tensor::full({1100}, 1, type);
          x.range(begin, count).fill(2);
          const Tensor here = x.to(kCpu).to(DType::f64);
          for (int64_t i = 0; i < x.numel(); ++i)
            ASSERT_EQ(here.item(i), i >= begin && i < begin + count ? 2 : 1) << type << " " << begin << " " << count;
        }
  });
}

// Every pair of floating-point types must round as on the CPU. Inputs: all 16-bit patterns, and numbers of many
// magnitudes.
TEST_F(CudaTensor, ConvertsLikeTheCpu) {
  std::vector<float> x{0,
                       -0.0f,
                       1,
                       65504,
                       65520,
                       1e6f,
                       -1e-6f,
                       6e-8f,
                       3e38f,
                       1e-40f,
                       std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  for (int i = 1; i < 3000; ++i) x.push_back(static_cast<float>(i) * 1.00037f * static_cast<float>(i % 2 ? 1 : -1));
  const Tensor source = Tensor::of(x, {std::ssize(x)});
  for (const DType from : {DType::f32, DType::bf16, DType::f16, DType::f64})
    for (const DType to : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
      const Tensor here = source.to(from), expected = here.to(to).to(DType::f64);
      const Tensor there = on_gpu([&] { return here.to(kGpu).to(to).to(kCpu).to(DType::f64); });
      EXPECT_EQ(there.to_vector<double>(), expected.to_vector<double>()) << from << " to " << to;
    }
  const Tensor labels = Tensor::of<int32_t>({1, -7, 1 << 30}, {3});
  on_gpu([&] {
    EXPECT_EQ(labels.to(kGpu).to(DType::i64).to_vector<int64_t>(), (std::vector<int64_t>{1, -7, 1 << 30}));
    EXPECT_EQ(labels.to(kGpu).to(DType::f32).device(), kGpu);
  });
}

// Larger than all staging slots together, so slots are reused while copies are in flight.
TEST_F(CudaTensor, LargeCopiesRoundTrip) {
  std::vector<int32_t> numbers(6 << 20);
  std::iota(numbers.begin(), numbers.end(), -17);
  on_gpu([&] {
    const Tensor x = Tensor::of(numbers, {std::ssize(numbers)});
    const Tensor y = x.clone();
    numbers.assign(numbers.size(), 0);  // the source may change as soon as the copy returns
    const std::vector<int32_t> back = y.to_vector<int32_t>();
    for (size_t i = 0; i < back.size(); ++i) ASSERT_EQ(back[i], static_cast<int32_t>(i) - 17);
    const Tensor part({10}, DType::i32, kCpu);
    part.copy_from(x.range(5 << 20, 10));
    EXPECT_EQ(part.item(9), (5 << 20) + 9 - 17);
  });
}

// Small copies fill the slots and begin at arbitrary offsets in them.
TEST_F(CudaTensor, ManySmallCopiesKeepTheirOrder) {
  on_gpu([&] {
    std::vector<Tensor> there;
    for (int i = 0; i < 70; ++i) {
      std::vector<uint8_t> bytes(static_cast<size_t>(300'000 + 1111 * i));
      for (size_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<uint8_t>(k * 7 + static_cast<size_t>(i));
      there.push_back(Tensor::of(bytes, {std::ssize(bytes)}));
    }
    for (size_t i = 0; i < there.size(); ++i) {
      const std::vector<uint8_t> bytes = there[i].to_vector<uint8_t>();
      for (size_t k = 0; k < bytes.size(); ++k) ASSERT_EQ(bytes[k], static_cast<uint8_t>(k * 7 + i)) << i << " " << k;
    }
  });
}

TEST_F(CudaTensor, CreatingAContextForAnotherGpuKeepsTheThreadsGpu) {
  if (cuda_devices() < 2) GTEST_SKIP() << "needs two GPUs";
  on_gpu([&] {
    const Context other = context_on(cuda_device(1));
    Event::record().wait();  // an event of another GPU would be rejected
    EXPECT_EQ(Tensor::full({2}, 1).item(), 1);
    {
      const ContextGuard guard(other);
      EXPECT_EQ(Tensor::full({2}, 2).item(), 2);
    }
    EXPECT_EQ(Tensor::full({2}, 3).item(), 3);
  });
}

TEST_F(CudaTensor, ViewsShareMemory) {
  on_gpu([&] {
    const Tensor x = Tensor::zeros({4, 3});
    x.rows(1, 2).fill(5);
    x.view({12}).range(11, 1).fill(7);
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 0, 0, 5, 5, 5, 5, 5, 5, 0, 0, 7}));
    EXPECT_EQ(Tensor::full({}, 2.5).item(), 2.5);
  });
}

TEST_F(CudaTensor, OutOfMemoryErrorsStateTheAvailableMemory) {
  on_gpu([&] {
    const std::string error = error_of([] { Tensor({int64_t{1} << 43}, DType::u8); });
    EXPECT_THAT(error, AllOf(HasSubstr("out of memory: 8796093022208 bytes requested"), HasSubstr(" free of "),
                             HasSubstr("on cuda:0; lower --batch")));
    EXPECT_EQ(Tensor::full({2}, 1).item(1), 1) << "the next allocation succeeds";
  });
}

TEST_F(CudaTensor, MemoryOutlivesItsContext) {
  Tensor x;
  {
    const ContextGuard guard(context_on(kGpu));
    x = Tensor::full({100}, 3);
  }
  EXPECT_EQ(on_gpu([&] { return x.item(99); }), 3) << "the destructor of a stream waits for its work";
}

TEST_F(CudaTensor, EachThreadHasItsOwnStream) {
  std::vector<std::thread> threads;
  std::vector<double> sums(4);
  for (size_t t = 0; t < sums.size(); ++t)
    threads.emplace_back([&, t] {
      const ContextGuard guard(context_on(kGpu));
      for (int i = 0; i < 50; ++i) sums[t] += Tensor::full({1000 + i}, static_cast<double>(t)).item(999);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(sums, (std::vector<double>{0, 50, 100, 150}));
}

TEST_F(CudaTensor, HighPriorityStreamsRunFirst) {
  on_gpu([] {
    const auto priority_of = [](bool high_priority) {
      Stream stream(high_priority);
      int priority = 0;
      stream.submit([&] { priority = stream_priority(); });
      stream.wait();
      return priority;
    };
    EXPECT_EQ(priority_of(false), stream_priority());
    EXPECT_LT(priority_of(true), stream_priority());
  });
}

}  // namespace cuda_test
}  // namespace godwit
