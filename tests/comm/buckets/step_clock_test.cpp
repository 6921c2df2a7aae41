#include "comm/buckets/step_clock.h"

#include <gtest/gtest.h>

#include <chrono>

namespace godwit {
namespace step_clock_test {

// Moments of a step, in milliseconds.
StepClock::Time at(int ms) { return StepClock::Time() + std::chrono::milliseconds(ms); }

// Backward ends at 60 ms. The exchange communicates from 40 to 100 ms and updates until 110 ms.
TEST(StepClock, ExposedTimeIsTheWaitOfTheComputingThread) {
  StepClock clock;
  clock.begin(at(0));
  EXPECT_EQ(clock.enter(Activity::compression, at(20)), Activity::none);
  EXPECT_EQ(clock.enter(Activity::communication, at(40)), Activity::compression);
  EXPECT_FALSE(clock.set_waiting(true, at(60)));
  clock.enter(Activity::update, at(100));
  clock.enter(Activity::none, at(110));
  EXPECT_TRUE(clock.set_waiting(false, at(115)));
  EXPECT_DOUBLE_EQ(clock.seconds(Activity::compression), 0.020);
  EXPECT_DOUBLE_EQ(clock.seconds(Activity::communication), 0.060);
  EXPECT_DOUBLE_EQ(clock.seconds(Activity::update), 0.010);
  EXPECT_DOUBLE_EQ(clock.exposed(Activity::compression), 0);
  EXPECT_DOUBLE_EQ(clock.exposed(Activity::communication), 0.040);
  EXPECT_DOUBLE_EQ(clock.exposed(Activity::update), 0.010);
  EXPECT_DOUBLE_EQ(clock.exposed(Activity::none), 0.005) << "idle";
  clock.begin(at(200));
  EXPECT_EQ(clock.seconds(Activity::communication), 0);
}

// Two threads read the time in one order and call add() in the other order.
TEST(StepClock, LateCallsDoNotCountTwice) {
  StepClock clock;
  clock.begin(at(0));
  clock.enter(Activity::communication, at(10));
  clock.set_waiting(true, at(30));
  clock.enter(Activity::none, at(29));
  clock.set_waiting(false, at(40));
  EXPECT_DOUBLE_EQ(clock.seconds(Activity::communication), 0.020);
  EXPECT_DOUBLE_EQ(clock.exposed(Activity::none), 0.010);
}

}  // namespace step_clock_test
}  // namespace godwit
