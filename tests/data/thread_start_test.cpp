// If the system refuses to start a thread, the result must be an Error and no leftover threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "data/prefetcher.h"
#include "data/thread_pool.h"
#include "tests/failing_threads.h"
#include "tests/support.h"

namespace godwit::data {
namespace thread_start_test {

using testing::AllOf;
using testing::HasSubstr;

TEST(ThreadStart, PrefetcherNamesTheThreadThatDidNotStart) {
  if (!kThreadsCanFail) GTEST_SKIP() << "the sanitizer replaces pthread_create()";
  for (const int allowed : {1, 3, 0}) {
    const FailingThreads failing(allowed);
    EXPECT_THAT(error_of([] { Prefetcher prefetcher(2, 4); }),
                AllOf(HasSubstr(std::to_string(allowed + 1) + " of 4"), HasSubstr("Resource temporarily unavailable"),
                      HasSubstr("ulimit -u"), HasSubstr("data.workers")));
  }
}

TEST(ThreadStart, WorkIsCanceledIfAThreadDoesNotStart) {
  if (!kThreadsCanFail) GTEST_SKIP() << "the sanitizer replaces pthread_create()";
  for (const int allowed : {0, 2}) {
    const FailingThreads failing(allowed);
    std::atomic<int64_t> done = 0;
    EXPECT_THAT(error_of([&] { parallel_for_each(1 << 30, 4, [&](int64_t) { ++done; }); }),
                AllOf(HasSubstr(std::to_string(allowed + 1) + " of 4"), HasSubstr("Resource temporarily unavailable"),
                      HasSubstr("ulimit -u")));
    EXPECT_LT(done, 1 << 30) << "the remaining items must be skipped";
  }
}

}  // namespace thread_start_test
}  // namespace godwit::data
