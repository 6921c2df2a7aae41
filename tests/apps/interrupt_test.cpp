#include "apps/common/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>

namespace godwit::apps {
namespace {

TEST(InterruptDeathTest, TheFirstIsRememberedTheNextEnds) {
  EXPECT_EXIT(
      {
        catch_interrupts("replaced", "replaced");
        catch_interrupts("stops soon", "stopped; run directory runs/x");
        std::raise(SIGINT);
        if (interrupted() == SIGINT) std::raise(SIGINT);
      },
      testing::ExitedWithCode(130), "^stops soon\nstopped; run directory runs/x\n$");
}

TEST(InterruptDeathTest, SoDoesSigterm) {
  EXPECT_EXIT(
      {
        catch_interrupts("", "stopped");
        if (interrupted() == 0) std::raise(SIGTERM);
        if (interrupted() == SIGTERM) std::raise(SIGTERM);
      },
      testing::ExitedWithCode(143), "^stopped\n$");
}

TEST(InterruptDeathTest, AVeryLongMessageIsCut) {
  EXPECT_EXIT(
      {
        catch_interrupts(std::string(100000, 'y'), std::string(100000, 'x'));
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      testing::ExitedWithCode(130), "yyy\nx.*xxx\n");
}

}  // namespace
}  // namespace godwit::apps
