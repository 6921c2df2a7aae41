// Sums and maxima over the pieces of ranges: more pieces than the threads of a warp read at once. This file is compiled
// like a kernel (CMakeLists.txt).
#include <gtest/gtest.h>

#include "optim/kernels/cuda/range_pieces.h"
#include "tests/gpu_memory.h"

namespace godwit {
namespace cuda_range_pieces_test {

TEST(CudaRangePieces, SumsAndMaximaCoverAllPieces) {
  const ContextGuard guard(context_on(cuda_device(0)));
  std::vector<Segment> ranges;
  int64_t end = 0, pieces = 0;
  for (const int64_t count : {1, 0, 15, 16, 17, 31, 33, 128, 129, 300}) {
    ranges.push_back({end, end + count * RangePieces::kValues - (count > 0 ? 1 : 0)});
    end = ranges.back().end;
    pieces += count;
  }
  const RangePieces of_ranges(ranges);
  ASSERT_EQ(of_ranges.pieces(), pieces);
  const auto values = random_values<double>(2 * pieces, 1);
  const auto sizes = random_values<float>(pieces, 2);
  const size_t count = ranges.size();
  std::vector<double> a(count, NAN), b(count, NAN);
  std::vector<float> most(count, NAN);
  ASSERT_EQ(emulated::run_grid(dim3(3), dim3(64),
                               [&] {
                                 const auto keep = [&](int64_t i, int64_t first, int64_t last, double x, double y) {
                                   const float largest = warp_largest(sizes.data(), first, last);
                                   const auto to = static_cast<size_t>(i);
                                   if (threadIdx.x == 0) a[to] = x, b[to] = y, most[to] = largest;
                                 };
                                 for_range_sums(of_ranges.table(), values.data(), keep);
                               }),
            cudaSuccess);
  size_t piece = 0;
  for (size_t i = 0; i < count; ++i) {
    double of_a = 0, of_b = 0;
    float largest = 0;
    for (int64_t k = 0; k < (ranges[i].numel() + RangePieces::kValues - 1) / RangePieces::kValues; ++k, ++piece) {
      of_a += values[piece];
      of_b += values[static_cast<size_t>(pieces) + piece];
      largest = std::max(largest, sizes[piece]);
    }
    EXPECT_EQ(a[i], of_a) << i;
    EXPECT_EQ(b[i], of_b) << i;
    EXPECT_EQ(most[i], largest) << i;
  }
  EXPECT_EQ(piece, static_cast<size_t>(pieces));
}

}  // namespace cuda_range_pieces_test
}  // namespace godwit
