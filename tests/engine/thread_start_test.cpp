#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/stream.h"
#include "tests/failing_threads.h"
#include "tests/support.h"

namespace godwit {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ThreadStart, StreamNamesWhatDidNotStart) {
  if (!kThreadsCanFail) GTEST_SKIP() << "a sanitizer starts the threads";
  const FailingThreads failing(0);
  EXPECT_THAT(error_of([] { Stream stream; }),
              AllOf(HasSubstr("cannot start"), HasSubstr("Resource temporarily unavailable"), HasSubstr("ulimit -u")));
}

}  // namespace
}  // namespace godwit
