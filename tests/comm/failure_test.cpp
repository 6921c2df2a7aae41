#include "comm/failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "comm/transport/local.h"
#include "comm/transport/startup_watchdog.h"
#include "tests/comm/suspension.h"
#include "tests/failing_threads.h"
#include "tests/support.h"

namespace godwit {
namespace failure_test {

using testing::AllOf;
using testing::HasSubstr;

TEST(Failure, ABareBadAllocHasAReadableMessage) {
  EXPECT_THAT(text_of(std::make_exception_ptr(std::bad_alloc())),
              AllOf(HasSubstr("out of memory"), HasSubstr("lower --batch"), testing::Not(HasSubstr("bad_alloc"))));
  EXPECT_EQ(text_of(std::make_exception_ptr(std::runtime_error("x"))), "x");
}

// All ranks throw the error of one rank, as after a failed checkpoint.
TEST(Failure, AnErrorThatNamesARankKeepsItsName) {
  using Split = std::pair<int, std::string>;
  EXPECT_EQ(split_rank(2, "rank 0: x: y"), Split(0, "x: y"));
  EXPECT_EQ(split_rank(2, "rank 13: "), Split(13, ""));
  for (const char* text : {"", "rank ", "rank 1", "rank 1:x", "rank -1: x", "rank 70000: x", "ranks 1: x", "rank : x"})
    EXPECT_EQ(split_rank(2, text), Split(2, text));
  EXPECT_EQ(with_rank(2, "x"), "rank 2: x");
  EXPECT_EQ(with_rank(2, "rank 0: x"), "rank 0: x");
}

TEST(Failure, NamesTheThreadsThatDidNotStart) {
  if (!kThreadsCanFail) GTEST_SKIP() << "the sanitizer replaces pthread_create()";
  const FailingThreads failing(0);
  EXPECT_THAT(error_of([] { StartupWatchdog(3, std::chrono::seconds(1)); }),
              AllOf(HasSubstr("cannot start the thread of rank 3"), HasSubstr("Resource temporarily unavailable"),
                    HasSubstr("ulimit -u")));
  const FailingThreads of_ranks(2);
  EXPECT_THAT(error_of([] {
                run_local({1, 4}, [](Communicator& comm) { comm.world->barrier("test"); });
              }),
              AllOf(HasSubstr("only 2 of 4 worker threads"), HasSubstr("ulimit -u")));
}

// The process is suspended for longer than the timeout, while the ranks start.
TEST(FailureDeathTest, ASuspendedStartContinues) {
  if (std::string(GODWIT_SANITIZE).find("thread") != std::string::npos)
    GTEST_SKIP() << "the thread sanitizer cannot start threads in a child process";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto start = [] {
    const StartupWatchdog watch(0, std::chrono::seconds(2));
    test::suspend_soon();
    test::wait_for_suspension();
    std::_Exit(7);
  };
  EXPECT_EXIT(start(), testing::ExitedWithCode(7), "");
}

}  // namespace failure_test
}  // namespace godwit
