#include "optim/checkpoint.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/optim/methods.h"
#include "tests/support.h"

namespace godwit {
namespace {

using test::for_each_method;
using test::MethodOutcome;
using test::MethodPlan;
using test::set_if_known;
using test::train_by;

// Saves at the first step from the third on at which replicas are equal. Returns that step; 0 if there was none.
int64_t save_in_between(MethodPlan plan, const std::string& folder, MethodOutcome* outcome) {
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

// A run that stops after a checkpoint and continues from it in new objects ends like a run that never stopped: in
// parameters, optimizer state, error feedback and master weights, bit for bit.
void compare(MethodPlan plan, const std::function<void(MethodPlan&)>& change = nullptr) {
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

TEST(Checkpoint, EveryMethodContinuesWithTheSameBits) {
  for_each_method([](const MethodPlan& plan) { compare(plan); });
}

TEST(Checkpoint, AlsoWithShardsAndRoundedParameters) {
  for (const char* exchange : {"dense", "loco", "zeropp", "loco_zeropp"})
    for (const char* sharding : {"zero1", "zero2"})
      for (const char* wire : {"f32", "bf16"}) {
        SCOPED_TRACE(std::string(exchange) + " " + sharding + " " + wire);
        compare({.optimizer = "adamw", .exchange = exchange, .sharding = sharding, .parameter_wire = wire});
      }
}

TEST(Checkpoint, AlsoWithOtherOptionsTopologiesAndSkippedSteps) {
  for (const Topology topology : {Topology{1, 1}, {3, 1}, {1, 3}})
    compare({.optimizer = "birder", .topology = topology});
  MethodPlan plan{.optimizer = "birder"};
  plan.change = [](DataParallelOptions& o) {
    o.optimizer.set("moments", "bf16")
        .set("errors", "int8")
        .set("mask", "automatic")
        .set("t0", 2);
  };
  compare(plan);
  plan.change = [](DataParallelOptions& o) { o.optimizer.set("collective", "all_gather"); };
  compare(plan);
  for (const char* name : {"one_bit_adam", "one_bit_lamb"}) {  // saved in a warm-up whose end is decided later
    MethodPlan warm{.optimizer = name};
    warm.change = [](DataParallelOptions& o) { o.optimizer.set("warmup_steps", 5).set("beta2", 0.5); };
    compare(warm);
  }
}

// Buckets decide which rank owns which values; the state of a rank is found in the files of others.
TEST(Checkpoint, BucketsMayChange) {
  for (const char* name : {"adamw", "birder", "one_bit_adam", "one_bit_lamb", "zero_one_adam"})
    for (const int64_t bytes : {64, 1 << 20}) {
      SCOPED_TRACE(name);
      MethodPlan plan{.optimizer = name};
      if (std::string(name) == "birder")
        plan.change = [](DataParallelOptions& o) { o.optimizer.set("mask", "automatic"); };
      compare(plan, [&](MethodPlan& changed) { changed.bucket_bytes = bytes; });
    }
  MethodPlan sharded{.optimizer = "adamw", .exchange = "dense", .sharding = "zero2", .parameter_wire = "bf16"};
  compare(sharded, [](MethodPlan& changed) { changed.bucket_bytes = 1 << 20; });
}

class SavedCheckpoint : public testing::Test {
 protected:
  SavedCheckpoint() {
    MethodOutcome ignored;
    EXPECT_EQ(save_in_between(plan_, folder_ / "step-3", &ignored), 3);
  }
  // The error of resuming with a changed plan; "" if there is none.
  std::string refusal(const std::function<void(MethodPlan&)>& change = nullptr) {
    MethodPlan plan = plan_;
    if (change) change(plan);
    plan.before_steps = [&](DataParallel& replica, Communicator& comm) {
      CheckpointExtras extras;
      load_checkpoint(folder_ / "step-3", replica, comm, extras);
    };
    return test::error_or_none([&] { train_by(plan); });
  }
  void expect_refused(const std::string& what, const std::function<void(MethodPlan&)>& change = nullptr) {
    const std::string error = refusal(change);
    EXPECT_NE(error.find(what), std::string::npos) << what << ": '" << error << "'";
  }
  std::string file(const std::string& name) const { return folder_ / ("step-3/" + name); }

  TempFolder folder_;
  MethodPlan plan_{.optimizer = "adamw"};
};

TEST_F(SavedCheckpoint, IsRefusedByAnotherRun) {
  EXPECT_EQ(refusal(), "");
  expect_refused("is of a run with \"adamw, dense, none\"", [](MethodPlan& p) { p.optimizer = "lamb"; });
  expect_refused("this run has \"adamw, loco, none\"", [](MethodPlan& p) { p.exchange = "loco"; });
  expect_refused("2 nodes, this run has 1", [](MethodPlan& p) { p.topology.nodes = 1; });
  expect_refused("2 workers per node", [](MethodPlan& p) { p.topology.workers_per_node = 1; });
  expect_refused("1060 parameters, this run has 1061", [](MethodPlan& p) { p.sizes = {40, 701, 64, 256}; });
  expect_refused("p1 is [700]", [](MethodPlan& p) { p.sizes = {700, 40, 64, 256}; });
}

TEST_F(SavedCheckpoint, DamageIsFoundAndNamesTheFile) {
  for (const char* name : {"model.safetensors", "rank-00000.safetensors", "rank-00003.safetensors"}) {
    const Bytes good = read(file(name));
    Bytes bad = good;
    bad[bad.size() / 2] ^= 1;
    write(file(name), bad);
    expect_refused(file(name) + ": its checksum differs");
    bad.pop_back();
    write(file(name), bad);
    expect_refused(file(name) + ": has " + std::to_string(bad.size()) + " bytes");
    std::filesystem::remove(file(name));
    expect_refused(file(name) + ": cannot be read");
    write(file(name), good);
  }
  EXPECT_EQ(refusal(), "");
}

TEST_F(SavedCheckpoint, ManifestIsChecked) {
  const Bytes good = read(file("manifest.json"));
  const std::string text(good.begin(), good.end());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    write(file("manifest.json"), Bytes(changed.begin(), changed.end()));
  };
  with("\"version\": 1", "\"version\": 2");
  expect_refused("version 2 is not readable; this program reads version 1");
  with("\"version\"", "\"versio\"");
  expect_refused("has no \"version\"");
  with("rank-00002", "rank-00009");
  expect_refused("does not list rank-00002.safetensors");
  with("xxh3_128", "md5");
  expect_refused("needs \"bytes\" and \"xxh3_128\"");
  write(file("manifest.json"), {'{'});
  expect_refused("manifest.json");
  std::filesystem::remove(file("manifest.json"));
  expect_refused("is no complete checkpoint");
}

TEST(Checkpoint, OnlyCompleteCheckpointsAreFoundAndNoneIsOverwritten) {
  const TempFolder folder;
  EXPECT_EQ(newest_checkpoint(folder.str()), "");
  EXPECT_EQ(newest_checkpoint(folder / "missing"), "");
  for (const char* name : {"step-9", "step-100", "step-", "step-7x", "other"})
    write(folder / (std::string(name) + "/manifest.json"), {'{'});
  write(folder / "step-200/model.safetensors", {});
  write(folder / "step-300.partial/manifest.json", {});
  EXPECT_EQ(newest_checkpoint(folder.str()), folder / "step-100");
  EXPECT_EQ(checkpoints_in(folder.str()).size(), 2u);
  MethodPlan plan{.optimizer = "adamw"};
  plan.after_step = [&](DataParallel& replica, Communicator& comm) {
    if (replica.steps() == 1) save_checkpoint(folder / "step-9", replica, comm);
  };
  EXPECT_NE(error_of([&] { train_by(plan); }).find("step-9: exists already"), std::string::npos);
}

TEST(Checkpoint, IsRefusedBetweenLocalSteps) {
  MethodPlan plan{.optimizer = "zero_one_adam"};
  plan.gradients = {1, 2, 3, 4, 5, 6};
  plan.change = [](DataParallelOptions& o) { o.optimizer.set("intervals", "fixed").set("max_interval", 4); };
  const TempFolder folder;
  plan.after_step = [&](DataParallel& replica, Communicator& comm) {
    if (replica.synchronized()) return;
    EXPECT_NE(error_of([&] { save_checkpoint(folder / "x", replica, comm); }).find("the replicas differ"),
              std::string::npos);
  };
  train_by(plan);
}

// An interrupted save leaves a folder with a temporary name, which the next save replaces.
TEST(Checkpoint, ReplacesAPartialOne) {
  const TempFolder folder;
  write(folder / "step.partial/rank-00009.safetensors", {1, 2, 3});
  MethodOutcome ignored;
  EXPECT_GT(save_in_between({.optimizer = "adamw"}, folder / "step", &ignored), 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "step.partial"));
  EXPECT_FALSE(std::filesystem::exists(folder / "step/rank-00009.safetensors"));
}

}  // namespace
}  // namespace godwit
