#include "data/thread_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/support.h"

namespace godwit::data {
namespace work_test {

TEST(Work, ProcessesEveryItemOnce) {
  for (const int64_t n : {0, 1, 7, 1000})
    for (const int threads : {0, 1, 3, 8}) {
      std::vector<std::atomic<int>> done(static_cast<size_t>(n));
      parallel_for_each(n, threads, [&](int64_t i) { ++done[static_cast<size_t>(i)]; });
      for (const auto& times : done) EXPECT_EQ(times, 1);
    }
}

TEST(Work, RethrowsTheErrorOfTheFirstItem) {
  for (const int threads : {1, 4})
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::atomic<int> begun = 0;
      const auto f = [&](int64_t i) {
        ++begun;
        if (i >= 5) fail("item ", i);
      };
      EXPECT_EQ(error_of([&] { parallel_for_each(100000, threads, f); }), "item 5");
      EXPECT_LT(begun, 1000) << "the remaining items must be skipped";
    }
}

TEST(Work, ReportsProgressFromTheCallersThread) {
  std::vector<int64_t> reports;
  const auto caller = std::this_thread::get_id();
  parallel_for_each(
      2, 2, [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(700)); },
      [&](int64_t done, int64_t total) {
        EXPECT_EQ(std::this_thread::get_id(), caller);
        EXPECT_EQ(total, 2);
        reports.push_back(done);
      });
  EXPECT_FALSE(reports.empty());
}

}  // namespace work_test
}  // namespace godwit::data
