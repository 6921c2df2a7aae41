#include "engine/vector_loop.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/context.h"

namespace godwit {
namespace vector_loop_test {

// y[i] = x[i]·factor, by vector_for or compute_for.
template <class Loop>
std::vector<float> products(const Loop& loop, const std::vector<float>& x, float factor) {
  std::vector<float> y(x.size());
  loop(static_cast<int64_t>(x.size()), 64,
       [in = x.data(), out = y.data(), factor](int64_t begin, int64_t end) GODWIT_INLINE {
         for (int64_t i = begin; i < end; ++i) out[i] = in[i] * factor;
       });
  return y;
}

#if defined(__x86_64__) || defined(__aarch64__)
TEST(VectorLoop, OnlyComputeForFlushesSubnormalNumbers) {
  const auto compute = [](auto... arguments) { compute_for(arguments...); };
  const auto exact = [](auto... arguments) { vector_for(arguments...); };
  const std::vector<float> subnormal(1000, 0x1p-130f), smallest(1000, 0x1p-126f);
  for (const int bits : {128, 256, 512})
    for (const int threads : {1, 3}) {
      const ContextGuard guard([&](Context& next) { next.vector_bits = bits, next.threads = threads; });
      EXPECT_EQ(products(compute, subnormal, 0x1p10f), std::vector<float>(1000, 0.0f)) << "inputs";
      EXPECT_EQ(products(compute, smallest, 0.5f), std::vector<float>(1000, 0.0f)) << "results";
      EXPECT_EQ(products(compute, smallest, 1.0f), smallest);
      EXPECT_EQ(products(exact, subnormal, 0x1p10f), std::vector<float>(1000, 0x1p-120f)) << "the mode is restored";
      EXPECT_EQ(products(exact, smallest, 0.5f), std::vector<float>(1000, 0x1p-127f));
    }
}
#endif

}  // namespace vector_loop_test
}  // namespace godwit
