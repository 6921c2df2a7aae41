#include "optim/spike_guard.h"

#include <gtest/gtest.h>

#include <limits>

#include "engine/philox.h"
#include "tests/support.h"

namespace godwit {
namespace spike_guard_test {

TEST(SpikeGuard, FindsLossesAndNormsAboveTheLimit) {
  SpikeGuard guard(6, 50);
  RandomStream random(1, Purpose::test);
  const auto noise = [&] { return 0.2 * (to_unit(static_cast<uint32_t>(random.below(1u << 31) * 2)) - 0.5); };
  for (int step = 0; step < 200; ++step) EXPECT_EQ(guard.observe(2 + noise(), 5 + noise()), "") << step;
  // The deviation of the noise is 0.2 / √12 = 0.058.
  EXPECT_EQ(guard.observe(2.3, 5), "");
  EXPECT_NE(guard.observe(2.6, 5).find("the loss is 2.6, "), std::string::npos) << guard.observe(2.6, 5);
  EXPECT_NE(guard.observe(2, 5.7).find("the gradient norm is 5.7, "), std::string::npos);
  EXPECT_EQ(guard.observe(-100, 0), "") << "a fall is no spike";
}

TEST(SpikeGuard, TheFirstStepsAndSmallChangesAreNormal) {
  SpikeGuard guard(3, 20);
  for (int step = 0; step < SpikeGuard::kLeast; ++step) EXPECT_EQ(guard.observe(step == 7 ? 1000 : 1, 1), "");
  SpikeGuard constant(3, 20);
  for (int step = 0; step < 30; ++step) EXPECT_EQ(constant.observe(1, 1), "");
  EXPECT_EQ(constant.observe(1.02, 1), "") << "2 % above equal losses";
  EXPECT_NE(constant.observe(1.04, 1), "");
  SpikeGuard zero(3, 20);
  for (int step = 0; step < 30; ++step) EXPECT_EQ(zero.observe(0, 0), "") << "no deviation and no jump";
  EXPECT_EQ(zero.observe(1, 0), "") << "no deviation is known";
  SpikeGuard infinite(3, 20);
  for (int step = 0; step < 30; ++step)
    EXPECT_EQ(infinite.observe(step == 7 ? std::numeric_limits<double>::infinity() : 1, 1), "");
  EXPECT_NE(infinite.observe(std::numeric_limits<double>::quiet_NaN(), 1), "");
  EXPECT_NE(error_of([] { SpikeGuard(0, 100); }).find("z is 0"), std::string::npos);
  EXPECT_NE(error_of([] { SpikeGuard(3, 19); }).find("at least 20"), std::string::npos);
}

// The deviation of ten zeros and ten twos is √(20 / 19) = 1.026.
TEST(SpikeGuard, DividesByOneLessThanTheCount) {
  SpikeGuard guard(3, 20);
  for (int step = 0; step < 20; ++step) EXPECT_EQ(guard.observe(step % 2 * 2, 1), "");
  EXPECT_NE(guard.observe(4.1, 1), "");
  EXPECT_EQ(guard.observe(4.05, 1), "");
}

TEST(SpikeGuard, ContinuesFromItsState) {
  SpikeGuard guard(4, 30), other(4, 30);
  for (int step = 0; step < 40; ++step) guard.observe(3 + 0.1 * (step % 7), 1);
  for (const auto& [name, values] : guard.state()) other.state().at(name).copy_from(values);
  EXPECT_EQ(other.observe(9, 1), guard.observe(9, 1));
  EXPECT_NE(other.observe(9, 1), "");
  other.state().at("seen").fill(-3);
  EXPECT_NE(error_of([&] { other.observe(3, 1); }).find("has seen -3 steps"), std::string::npos);
}

}  // namespace spike_guard_test
}  // namespace godwit
