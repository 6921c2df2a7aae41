// Runs that stop after a checkpoint and continue.
#pragma once
#include <atomic>

#include "optim/checkpoint.h"
#include "tests/optim/methods.h"
#include "tests/support.h"

namespace godwit::test {

// Saves at the first step from step 3 on at which replicas are equal. Returns that step, or 0 if there was none.
inline int64_t save_in_between(MethodPlan plan, const std::string& folder, MethodOutcome* outcome) {
  std::atomic<int64_t> saved{0};
  plan.after_step = [&](DataParallel& replica, Communicator& comm) {
    if (saved != 0 || replica.steps() < 3 || !replica.synchronized()) return;
    save_checkpoint(folder, replica, comm);
    comm.world->barrier("test");
    saved = replica.steps();
    comm.world->barrier("test");
  };
  *outcome = train_by(plan);
  return saved;
}

// A run that stops after a checkpoint and continues from it in new objects must end like a run that never stopped:
// parameters, optimizer state, error feedback and master weights are equal bit for bit.
inline void expect_resumed_alike(MethodPlan plan, const std::function<void(MethodPlan&)>& change = nullptr) {
  plan.gradients = {1, 2, 3, 4, 5, 6};
  const TempFolder folder;
  MethodOutcome whole;
  const int64_t saved = save_in_between(plan, folder / "step", &whole);
  ASSERT_GT(saved, 0);
  if (change) change(plan);
  if (change) whole = train_by(plan);  // state by bucket
  plan.gradients.erase(plan.gradients.begin(), plan.gradients.begin() + saved);
  plan.before_steps = [&](DataParallel& replica, Communicator& comm) {
    CheckpointExtras extras;
    load_checkpoint(folder / "step", replica, comm, extras);
    EXPECT_EQ(replica.steps(), saved);
  };
  const MethodOutcome resumed = train_by(plan);
  EXPECT_EQ(resumed.x.back(), whole.x.back());
  EXPECT_EQ(resumed.parameters, whole.parameters);
  EXPECT_EQ(resumed.optimizer, whole.optimizer);
  EXPECT_EQ(resumed.exchange, whole.exchange);
  EXPECT_EQ(resumed.masters, whole.masters);
}

}  // namespace godwit::test
