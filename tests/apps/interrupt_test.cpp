#include "apps/train/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

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
      testing::ExitedWithCode(130), "^SIGINT: stops soon\nstopped; run directory runs/x\n$");
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

// A terminal that is closed may send two.
TEST(InterruptDeathTest, SighupIsRememberedAndNeverEnds) {
  EXPECT_EXIT(
      {
        catch_interrupts("stops soon", "stopped");
        std::raise(SIGHUP);
        std::raise(SIGHUP);
        if (interrupted() == SIGHUP) std::raise(SIGTERM);
      },
      testing::ExitedWithCode(143), "^SIGHUP: stops soon\nstopped\n$");
}

TEST(InterruptDeathTest, NohupStays) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);
        catch_interrupts("stops soon", "stopped");
        std::raise(SIGHUP);
        std::_Exit(interrupted());
      },
      testing::ExitedWithCode(0), "^$");
}

TEST(InterruptDeathTest, SilencedSignalsStillCount) {
  EXPECT_EXIT(
      {
        catch_interrupts("stops soon", "stopped");
        silence_interrupts();
        std::raise(SIGTERM);
        if (interrupted() == SIGTERM) std::raise(SIGTERM);
      },
      testing::ExitedWithCode(143), "^$");
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
