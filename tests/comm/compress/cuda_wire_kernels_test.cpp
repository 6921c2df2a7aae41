// Wire kernels on a GPU and on the CPU. Messages, residuals and decoded values must match bit for bit.
#include <gmock/gmock.h>

#include <limits>

#include "comm/buckets/finite.h"
#include "comm/compress/wire/half.h"
#include "comm/compress/wire/scaled_signs.h"
#include "comm/compress/wire/sign_bits.h"
#include "tests/gpu_memory.h"
#include "tests/support.h"

namespace godwit {
namespace cuda_wire_kernels_test {

class CudaWire : public OnGpu {
 protected:
  Cuda device() const { return cuda_of(cuda_device(0)); }
};

const std::vector<int64_t> kCounts{1, 31, 32, 33, 257, 1000, 4099};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST_F(CudaWire, SignBitsMatchTheCpu) {
  on_gpu([&] {
    for (const int64_t n : kCounts) {
      auto x = random_values<float>(n, 1);
      x[0] = std::numeric_limits<float>::quiet_NaN();
      std::vector<uint32_t> words(static_cast<size_t>(sign_words(n)), 0xDEADBEEF);
      const There<float> on_x(x);
      const There<uint32_t> on_words(words);
      pack_signs(Cpu{}, x.data(), words.data(), n);
      pack_signs(device(), on_x.data(), on_words.data(), n);
      expect_same(on_words, words, "words");
      unpack_signs(Cpu{}, words.data(), x.data(), n);
      unpack_signs(device(), on_words.data(), on_x.data(), n);
      expect_same(on_x, x, "values");
      for (const int64_t senders : {1, 2, 7, 16, 300}) {
        const auto sent = random_bits(senders * sign_words(n), 2);
        const There<uint32_t> on_sent(sent);
        std::vector<int16_t> sum(static_cast<size_t>(n));
        std::vector<int32_t> wide(static_cast<size_t>(n));
        const There<int16_t> on_sum(sum);
        const There<int32_t> on_wide(wide);
        sum_signs(Cpu{}, sent.data(), senders, sign_words(n), sum.data(), n);
        sum_signs(device(), on_sent.data(), senders, sign_words(n), on_sum.data(), n);
        expect_same(on_sum, sum, "sums");
        sum_signs(Cpu{}, sent.data(), senders, sign_words(n), wide.data(), n);
        sum_signs(device(), on_sent.data(), senders, sign_words(n), on_wide.data(), n);
        expect_same(on_wide, wide, "sums");
        majority_signs(Cpu{}, sent.data(), senders, words.data(), n);
        majority_signs(device(), on_sent.data(), senders, on_words.data(), n);
        expect_same(on_words, words, "votes");
      }
    }
  });
}

TEST_F(CudaWire, HalvesMatchTheCpu) {
  on_gpu([&] {
    for (const DType wire : {DType::bf16, DType::f16})
      for (const int64_t n : kCounts) {
        auto values = random_values<float>(3 * n, 3);
        values[0] = kInfinity;
        const Tensor on_x = Tensor::of(values, {3 * n}), x = on_x.to(kCpu);
        const Tensor on_halves = to_half(device(), on_x, wire, "test"),
                     halves = to_half(Cpu{}, x, wire, "test").to(kCpu);
        const auto bytes = [](const Tensor& t) {
          const Tensor here = t.to(kCpu);
          const auto* at = static_cast<const uint8_t*>(here.address());
          return std::vector<uint8_t>(at, at + here.bytes());
        };
        EXPECT_EQ(bytes(on_halves), bytes(halves));
        const Tensor on_mean({n}, wire), mean({n}, wire, kCpu);
        mean_of_halves(device(), on_halves, 3, on_mean);
        mean_of_halves(Cpu{}, halves, 3, mean);
        EXPECT_EQ(bytes(on_mean), bytes(mean));
        from_half(device(), on_halves, on_x);
        from_half(Cpu{}, halves, x);
        EXPECT_EQ(bytes(on_x), bytes(x));
      }
    const Tensor large = Tensor::full({5}, 70000);
    EXPECT_THAT(error_of([&] { to_half(device(), large, DType::f16, "dense"); }),
                ::testing::HasSubstr("dense: the value 70000 overflows float16"));
  });
}

// n values in blocks of `size`; their bits follow the scales and `gap` unrelated bits.
SignTiles tiles_of(int64_t n, int64_t size, int64_t gap) {
  SignTiles tiles;
  const int64_t first = 32 * ((n + size - 1) / size) + gap;
  for (int64_t at = 0; at < n; at += size)
    tiles.add(at, std::min(size, n - at), first + at, at / size, at / size);
  return tiles;
}

void compare_scaled_signs(Cuda device, int64_t n, int64_t size, int64_t gap, SignScale scale, int senders) {
  SCOPED_TRACE(::testing::Message() << n << " values in blocks of " << size << " after " << gap << " bits, "
                                    << senders << " senders");
  const SignTiles tiles = tiles_of(n, size, gap);
  const int64_t stride = (n + size - 1) / size + (gap + n + 31) / 32;
  auto e = random_values<float>(n, 4), x = random_values<float>(n, 5);
  const There<float> on_e(e), on_x(x);
  std::vector<uint32_t> sent;
  for (int s = 0; s < senders; ++s) {
    const auto values = random_values<float>(n, static_cast<uint32_t>(10 + s));
    std::vector<uint32_t> words(static_cast<size_t>(stride));
    const There<float> on_values(values);
    const There<uint32_t> on_words(words);
    EXPECT_EQ(first_fault(compress_signs(Cpu{}, values.data(), e.data(), tiles, scale, words.data())), -1);
    EXPECT_EQ(first_fault(compress_signs(device, on_values.data(), on_e.data(), tiles, scale, on_words.data())), -1);
    expect_same(on_words, words, "message");
    expect_same(on_e, e, "errors");
    sent.insert(sent.end(), words.begin(), words.end());
  }
  std::vector<uint32_t> mean(static_cast<size_t>(stride));
  const There<uint32_t> on_sent(sent), on_mean(mean);
  EXPECT_EQ(
      first_fault(compress_mean_of_signs(Cpu{}, sent.data(), senders, stride, e.data(), tiles, scale, mean.data())),
      -1);
  EXPECT_EQ(first_fault(compress_mean_of_signs(device, on_sent.data(), senders, stride, on_e.data(), tiles, scale,
                                               on_mean.data())),
            -1);
  expect_same(on_mean, mean, "the owner's message");
  expect_same(on_e, e, "the owner's errors");
  expand_signs(Cpu{}, mean.data(), tiles, x.data());
  expand_signs(device, on_mean.data(), tiles, on_x.data());
  expect_same(on_x, x, "values");
}

TEST_F(CudaWire, ScaledSignsMatchTheCpu) {
  on_gpu([&] {
    for (const SignScale scale : {SignScale::l1_mean, SignScale::l2_rms}) {
      compare_scaled_signs(device(), 1, 1, 0, scale, 1);
      compare_scaled_signs(device(), 33, 33, 5, scale, 2);
      compare_scaled_signs(device(), 1000, 7, 3, scale, 3);
      compare_scaled_signs(device(), 4096 + 100, 4096, 0, scale, 4);
      compare_scaled_signs(device(), 2 * 4096 + 77, 2 * 4096 + 77, 31, scale, 3);  // blocks of several tiles
      compare_scaled_signs(device(), 10001, 5000, 1, scale, 5);
    }
  });
}

TEST_F(CudaWire, ScaledSignsFindTheFirstNonFiniteBlock) {
  on_gpu([&] {
    for (const int64_t size : {50, 5000}) {
      const SignTiles tiles = tiles_of(20000, size, 0);
      std::vector<float> x(20000, 1);
      x[12345] = kInfinity, x[17000] = std::numeric_limits<float>::quiet_NaN();
      const There<float> on_x(x), on_e(std::vector<float>(20000));
      const There<uint32_t> words(std::vector<uint32_t>(static_cast<size_t>(20000 / size + 20000 / 32)));
      EXPECT_EQ(
          first_fault(compress_signs(device(), on_x.data(), on_e.data(), tiles, SignScale::l1_mean, words.data())),
          12345 / size * size);
    }
  });
}

template <class T>
void compare_searches() {
  for (const int64_t at : {-1, 0, 5, 1000, 1001}) {
    auto values = random_values<T>(1003, 6);
    values[1002] = std::numeric_limits<T>::infinity();
    if (at >= 0) values[static_cast<size_t>(at)] = std::numeric_limits<T>::quiet_NaN();
    const Tensor x = Tensor::of(values, {1003});
    EXPECT_EQ(first_not_finite(x, 1003), at < 0 ? 1002 : at);
    EXPECT_EQ(first_not_finite(x, 1001), at < 0 || at > 1000 ? 1001 : at);
    EXPECT_EQ(first_not_finite(x, 0), 0);
  }
}

TEST_F(CudaWire, FindsTheFirstNonFiniteValue) {
  on_gpu([] { compare_searches<float>(); });
  on_gpu([] { compare_searches<double>(); });
}

}  // namespace cuda_wire_kernels_test
}  // namespace godwit
