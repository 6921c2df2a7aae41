#include "apps/common/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>

namespace godwit::apps {
namespace {

TEST(InterruptDeathTest, CtrlCSaysTheMessageAndEnds) {
  EXPECT_EXIT(
      {
        end_on_interrupt("replaced");
        end_on_interrupt("stopped; run directory runs/x");
        std::raise(SIGINT);
      },
      testing::ExitedWithCode(130), "stopped; run directory runs/x\n");
}

TEST(InterruptDeathTest, SoDoesSigterm) {
  EXPECT_EXIT(
      {
        end_on_interrupt("stopped");
        std::raise(SIGTERM);
      },
      testing::ExitedWithCode(143), "stopped\n");
}

TEST(InterruptDeathTest, AVeryLongMessageIsCut) {
  EXPECT_EXIT(
      {
        end_on_interrupt(std::string(100000, 'x'));
        std::raise(SIGINT);
      },
      testing::ExitedWithCode(130), "xxx\n");
}

}  // namespace
}  // namespace godwit::apps
