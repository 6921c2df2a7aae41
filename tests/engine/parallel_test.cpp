#include "engine/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "tests/support.h"

namespace godwit {
namespace parallel_test {

TEST(ParallelFor, CoversEveryIndexOnceInAlignedRanges) {
  for (int threads : {1, 2, 3, 8}) {
    ContextGuard guard({.threads = threads});
    for (int64_t n : {0, 1, 2, 7, 8, 63, 64, 65, 1000, 4097})
      for (int64_t grain : {0, 1, 10, 5000})
        for (int64_t align : {1, 8, 64}) {
          std::vector<std::atomic<int>> visits(static_cast<size_t>(n));
          std::atomic<int> calls = 0, misaligned = 0;
          parallel_for(
              n, grain,
              [&](int64_t begin, int64_t end) {
                ++calls;
                misaligned += begin >= end || begin % align != 0 || (end % align != 0 && end != n);
                for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
              },
              align);
          for (const auto& count : visits) ASSERT_EQ(count, 1) << n << " " << grain << " " << align << " " << threads;
          EXPECT_EQ(misaligned, 0) << n << " " << grain << " " << align << " " << threads;
          EXPECT_LE(calls, n < grain ? 1 : threads);
        }
  }
}

TEST(ParallelFor, RethrowsAnExceptionAndStaysUsable) {
  for (int threads : {1, 2, 4}) {
    ContextGuard guard({.threads = threads});
    for (int64_t bad : {0, 50, 99}) {
      const std::string error = error_of([&] {
        parallel_for(100, 1, [&](int64_t begin, int64_t end) {
          if (begin <= bad && bad < end) fail("index ", bad);
        });
      });
      EXPECT_EQ(error, "index " + std::to_string(bad));
    }
    EXPECT_THROW(parallel_for(100, 1, [](int64_t, int64_t) { fail("all of them"); }), Error);
    std::atomic<int64_t> sum = 0;
    parallel_for(100, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
    EXPECT_EQ(sum, 100);
  }
}

TEST(ParallelFor, Nests) {
  ContextGuard guard({.threads = 2});
  std::atomic<int64_t> sum = 0;
  parallel_for(10, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      parallel_for(100, 1, [&](int64_t first, int64_t last) { sum += last - first; });
  });
  EXPECT_EQ(sum, 1000);
}

}  // namespace parallel_test
}  // namespace godwit
