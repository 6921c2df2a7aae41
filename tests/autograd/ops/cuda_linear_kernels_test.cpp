// Epilogues of cuBLASLt in linear(): the bias, and the sum for its gradient.
#include <gmock/gmock.h>

#include "autograd/ops/linear.h"
#include "engine/cuda/blas.h"
#include "engine/gpu.h"
#include "tests/autograd/gradient_check.h"
#include "tests/on_gpu.h"

namespace godwit {
namespace cuda_linear_kernels_test {

using ::godwit::detail::concat;
using test::random_tensor, test::values;

struct Sizes {
  int64_t rows, in, out;
};

// Ones and odd sizes. For inner sizes 5 and 13, the emulator has no algorithm with an epilogue. Some versions of
// cuBLASLt may have no such algorithm, so the result of multiply_with_epilogue() is checked only in the emulator.
const Sizes kSizes[] = {{1, 1, 1}, {3, 5, 7}, {13, 9, 2}, {33, 17, 31}, {64, 48, 80}, {504, 24, 40}};

class CudaLinear : public OnGpu {
 protected:
  static Cuda device() { return cuda_of(context().device); }

  // Whether cuBLASLt must have an algorithm with an epilogue for the inner size.
  void expect_epilogue(bool done, int64_t inner) const {
    const bool emulated = on_gpu([] { return gpu_name().find("emulated") != std::string::npos; });
    EXPECT_TRUE(!emulated || done == (inner % 8 != 5));
  }

  static Tensor random(Shape shape, DType type, uint64_t seed) {
    return random_tensor(shape, DType::f32, seed).to(type);
  }

  // Sums of `terms` float32 terms in any order, of magnitude 1 to 4; bfloat16 results are rounded once more. `rounded`:
  // values that are rounded to bfloat16 before.
  static void expect_close(const Tensor& found, const Tensor& expected, int64_t terms, const Tensor& rounded = {}) {
    ASSERT_EQ(found.shape(), expected.shape());
    const std::vector<double> f = values(found), e = values(expected);
    const std::vector<double> before = rounded.defined() ? values(rounded) : std::vector<double>(e.size());
    const double bound = static_cast<double>(terms * (terms + 2)) * 0x1p-22;
    for (size_t i = 0; i < e.size(); ++i)
      ASSERT_LE(std::abs(f[i] - e[i]),
                bound + (found.dtype() == DType::bf16 ? 0x1p-7 * std::abs(e[i]) + 0x1p-8 * std::abs(before[i]) : 0))
          << "element " << i << ": " << f[i] << ", expected " << e[i];
  }
};

TEST_F(CudaLinear, TheProductAddsTheBias) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const auto& [rows, in, out] : kSizes) {
      SCOPED_TRACE(concat(type, " [", rows, ", ", in, "] to ", out));
      const Tensor x = random({rows, in}, type, 1), w = random({out, in}, type, 2), bias = random({out}, type, 3);
      const Tensor y({rows, out}, type), before = Tensor::full({rows, out}, 7, type);
      linear_forward(Cpu{}, x, {w.to(DType::f32)}, {bias.to(DType::f32)}, y);
      const CudaProduct product{"linear", false, true, rows, out, in};
      bool done = false;
      const Tensor found = on_gpu([&] {
        const Device gpu = context().device;
        const Tensor to = before.to(gpu);
        done = multiply_with_epilogue(device(), Epilogue::add_bias, product, x.to(gpu), w.to(gpu), bias.to(gpu), to);
        return to.to(kCpu);
      });
      expect_epilogue(done, in);
      // For rows that are not multiples of 16 bytes, cuBLASLt rounds the product before it adds the bias.
      Tensor rounded;
      if (in % 8 != 0 || out % 8 != 0) {
        rounded = Tensor({rows, out}, type);
        linear_forward(Cpu{}, x, {w.to(DType::f32)}, {}, rounded);
      }
      if (done) expect_close(found, y, in, rounded);
      else EXPECT_EQ(values(found), values(before));
    }
}

// db is float32 also for bfloat16 values. Like parameters, it begins at unaligned addresses; neighboring values must
// not change.
TEST_F(CudaLinear, TheProductSumsTheBiasGradient) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const auto& [rows, in, out] : kSizes)
      for (const int64_t offset : {0, 3}) {
        SCOPED_TRACE(concat(type, " [", rows, ", ", in, "] to ", out, ", db at ", offset));
        const Tensor x = random({rows, in}, type, 1), dy = random({rows, out}, type, 2);
        const Tensor dw({out, in}), all = Tensor::full({out + 8}, 7), before = all.clone();
        linear_backward_weights(Cpu{}, x, dy, {dw}, {all.range(offset, out)});
        const CudaProduct product{"linear", true, false, out, in, rows};
        bool done = false;
        const auto [found_dw, found] = on_gpu([&] {
          const Device gpu = context().device;
          const Tensor to({out, in}), sums = before.to(gpu);
          done = multiply_with_epilogue(device(), Epilogue::sum_a, product, dy.to(gpu), x.to(gpu),
                                        sums.range(offset, out), to);
          return std::pair(to.to(kCpu), sums.to(kCpu));
        });
        expect_epilogue(done, rows);
        if (done) expect_close(found_dw, dw, rows);
        expect_close(found, done ? all : before, done ? rows : 0);
      }
}

// With and without the epilogue.
TEST_F(CudaLinear, IsReproducible) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const auto& [rows, in, out] : kSizes) {
      SCOPED_TRACE(concat(type, " [", rows, ", ", in, "] to ", out));
      const Tensor x = random({rows, in}, type, 1), dy = random({rows, out}, type, 2);
      const auto gradients = [&] {
        const Tensor dw({out, in}), db({out});
        linear_backward_weights(device(), x.to(context().device), dy.to(context().device), {dw}, {db});
        return std::pair(values(dw), values(db));
      };
      on_gpu([&] {
        const auto first = gradients();
        for (int i = 0; i < 3; ++i) EXPECT_EQ(gradients(), first);
      });
    }
}

}  // namespace cuda_linear_kernels_test
}  // namespace godwit
