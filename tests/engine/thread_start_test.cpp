#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/stream.h"
#include "tests/failing_threads.h"
#include "tests/support.h"

namespace godwit {
namespace thread_start_test {

using testing::AllOf;
using testing::HasSubstr;

TEST(ThreadStart, StreamNamesTheThreadThatDidNotStart) {
  if (!kThreadsCanFail) GTEST_SKIP() << "the sanitizer replaces pthread_create()";
  const FailingThreads failing(0);
  EXPECT_THAT(error_of([] { Stream stream; }),
              AllOf(HasSubstr("cannot start"), HasSubstr("Resource temporarily unavailable"), HasSubstr("ulimit -u")));
}

}  // namespace thread_start_test
}  // namespace godwit
