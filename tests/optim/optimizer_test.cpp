#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include "comm/exchange/method.h"
#include "comm/transport/local.h"
#include "optim/method.h"

namespace godwit {
namespace optimizer_test {

// Runs one step with constant gradients, then `check` on the optimizer.
void after_a_step(const std::string& name, const std::function<void(Optimizer&)>& check) {
  run_local({2, 1}, [&](Communicator& comm) {
    Buckets buckets({{"x", Var(Tensor::full({70}, 0.5), true)}}, {.alignment = 64});
    const OptimizerConfig config = name;
    const bool own = config.method().communicates_itself;
    auto optimizer =
        make_optimizer(config, {buckets, comm, 1, own ? nullptr : make_exchange("dense", buckets, comm, 1)});
    buckets[0].grad.range(0, 70).fill(0.25 + comm.rank);
    optimizer->exchange(buckets[0], comm, {1, 0.1});
    optimizer->apply(buckets[0], {1, 0.1});
    check(*optimizer);
  });
}

TEST(Optimizer, SharedStateHashDependsOnEveryBitOfReplicatedState) {
  for (const std::string name : {"sgdm", "adam", "adamw", "softsignsgd"})
    after_a_step(name, [&](Optimizer& optimizer) {
      const uint64_t before = optimizer.shared_state_hash();
      for (const StateTensor& part : optimizer.state()) {
        ASSERT_TRUE(part.replicated) << name;
        Tensor last = part.values.range(part.values.numel() - 1, 1);
        uint32_t* bits = static_cast<uint32_t*>(last.raw());
        *bits ^= 1;
        EXPECT_NE(optimizer.shared_state_hash(), before) << name << ": " << part.name;
        *bits ^= 1;
      }
      EXPECT_EQ(optimizer.shared_state_hash(), before);
    });
}

TEST(Optimizer, SharedStateHashExcludesRankSpecificState) {
  after_a_step("birder", [](Optimizer& optimizer) {
    const uint64_t before = optimizer.shared_state_hash();
    ASSERT_FALSE(optimizer.state().empty());
    for (const StateTensor& part : optimizer.state()) part.values.fill(7);
    EXPECT_EQ(optimizer.shared_state_hash(), before);
  });
}

}  // namespace optimizer_test
}  // namespace godwit
