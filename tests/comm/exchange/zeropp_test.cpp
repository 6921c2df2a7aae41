#include "comm/exchange/zeropp.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/comm/exchange/exchange_harness.h"

namespace godwit {
namespace {

using namespace godwit::testing;

// Rounds each value to the nearest of 15 levels between ± the block's largest magnitude.
Values four_bits(const Values& z, int64_t, int64_t, Purpose, int) {
  float most = 0;
  for (const float value : z) most = std::max(most, std::abs(value));
  Values result;
  for (const float value : z) result.push_back(std::nearbyint(value * (7 / most)) * (most / 7));
  return result;
}

TEST(Zeropp, MatchesTheParameterServerBitForBit) {
  for (const Topology& topology : kRanks)
    for (const int64_t block_size : {0, 1, 50}) {
      ExchangePlan plan;
      plan.config = ZeroppOptions{.block_size = block_size};
      plan.config.sharding = Sharding::none, plan.config.parameter_wire = ParameterWire::f32;
      plan.topology = topology;
      expect_parameter_server(plan, [](const Values& z, int64_t begin, int64_t step, Purpose purpose, int sender) {
        for (const float value : z)
          if (value != 0) return four_bits(z, begin, step, purpose, sender);
        return Values(z.size());
      });
    }
}

}  // namespace
}  // namespace godwit
