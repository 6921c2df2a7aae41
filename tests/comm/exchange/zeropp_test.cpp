#include "comm/exchange/zeropp.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/comm/exchange/exchange_harness.h"

namespace godwit {
namespace zeropp_test {

using namespace godwit::test;

// Rounds each value to the nearest of 15 levels between ± the block's largest magnitude; blocks of zeros stay 0.
Values four_bits(const Values& z, int64_t, int64_t, Purpose, int) {
  float most = 0;
  const float* from = z.data();
  for (size_t i = 0, n = z.size(); i < n; ++i) most = std::abs(from[i]) > most ? std::abs(from[i]) : most;
  Values result(z.size());
  float* to = result.data();
  for (size_t i = 0, n = z.size(); most != 0 && i < n; ++i) to[i] = std::nearbyint(from[i] * (7 / most)) * (most / 7);
  return result;
}

TEST(Zeropp, MatchesTheParameterServerBitForBit) {
  for (const Topology& topology : kRanks)
    for (const int64_t block_size : {0, 1, 50}) {
      ExchangePlan plan;
      plan.config = ZeroppOptions{.block_size = block_size};
      plan.config.sharding = Sharding::none, plan.config.parameter_wire = ParameterWire::f32;
      plan.topology = topology;
      plan.steps = 10;  // zeropp has no state
      expect_parameter_server(plan, four_bits);
    }
}

}  // namespace zeropp_test
}  // namespace godwit
