// Checkpoints that are loaded with another number of workers or with other frozen parameters.
#include <gtest/gtest.h>

#include <mutex>
#include <numeric>

#include "optim/checkpoint.h"
#include "optim/saved_state.h"
#include "tests/optim/checkpoint_harness.h"
#include "tests/optim/methods.h"
#include "tests/support.h"

namespace godwit {
namespace redistribute_test {

using test::MethodOutcome;
using test::MethodPlan;
using test::save_in_between;
using test::train_by;

// Sums of state tensors over the ranks, and the numbers of ranks that have a value, by element of the parameter vector.
class Means {
 public:
  void add(const DataParallel& replica, const CheckpointExtras& extras = {}) {
    const std::lock_guard lock(mutex_);
    const auto numel = static_cast<size_t>(replica.buckets().numel());
    const std::vector<StateTensor> parts = checkpoint::parts_of(replica, extras);
    for (const StateTensor& part : parts) {
      auto& [sums, counts, rounding] = of_[part.name];
      if (part.values.dtype() == DType::u8) rounding = 0.5;  // to whole codes
      sums.resize(numel), counts.resize(numel);
      for (int64_t i = part.begin; i < part.end(); ++i) {
        sums[static_cast<size_t>(i)] += value(part.values, i - part.begin);
        ++counts[static_cast<size_t>(i)];
      }
    }
  }
  // Compares with the state after a load. Values that only one of the runs has are not compared.
  void expect_kept_in(const Means& after, const std::string& what) const {
    for (const auto& [name, here] : of_) {
      const auto found = after.of_.find(name);
      if (found == after.of_.end()) continue;
      double largest = 0, error = 0;
      for (size_t i = 0; i < here.sums.size(); ++i) {
        if (here.counts[i] == 0 || found->second.counts[i] == 0) continue;
        const double before = here.sums[i] / here.counts[i], now = found->second.sums[i] / found->second.counts[i];
        largest = std::max(largest, std::abs(before)), error = std::max(error, std::abs(before - now));
      }
      EXPECT_LE(error, here.rounding + 1e-6 * largest) << what << ": " << name;
    }
  }

  void forget(const std::string& prefix) {
    std::erase_if(of_, [&](const auto& of) { return of.first.starts_with(prefix); });
  }
  void expect_all(const std::string& name, double expected) const {
    const Of& of = of_.at(name);
    for (size_t i = 0; i < of.sums.size(); ++i) EXPECT_EQ(of.sums[i], of.counts[i] * expected) << name << " at " << i;
  }

 private:
  struct Of {
    std::vector<double> sums, counts;
    double rounding = 0;
  };
  static double value(const Tensor& x, int64_t i) {
    if (x.dtype() == DType::u8) return static_cast<const int8_t*>(x.address())[i];
    if (x.dtype() == DType::u32) return static_cast<const uint32_t*>(x.address())[i / 32] >> (i % 32) & 1;
    return x.item(i);
  }
  std::mutex mutex_;
  std::map<std::string, Of> of_;
};

// Saves after the first synchronized step from the third on.
void save(MethodPlan plan, const std::string& folder, Means& means) {
  std::atomic<bool> saved{false};
  plan.gradients = {1, 2, 3, 4, 5, 6};
  plan.after_step = [&](DataParallel& replica, Communicator& comm) {
    if (saved || replica.steps() < 3 || !replica.synchronized()) return;
    save_checkpoint(folder, replica, comm);
    means.add(replica);
    comm.world->barrier("test");
    saved = true;
    comm.world->barrier("test");
  };
  train_by(plan);
  ASSERT_TRUE(saved);
}

// Loads in another topology and takes two more steps.
std::string load(MethodPlan plan, const std::string& folder, Means& means) {
  std::string said;
  std::mutex mutex;
  plan.gradients = {7, 8};
  plan.before_steps = [&](DataParallel& replica, Communicator& comm) {
    CheckpointExtras extras;
    const std::string line = load_checkpoint(folder, replica, comm, extras);
    means.add(replica);
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(said.empty() || said == line) << said << "\n" << line;
    said = line;
  };
  const test::MethodOutcome outcome = train_by(plan);
  for (const test::Remains& remains : outcome.parameters) EXPECT_EQ(remains, outcome.parameters[0]);
  for (const std::vector<float>& x : outcome.x)
    for (const float value : x) EXPECT_TRUE(std::isfinite(value));
  return said;
}

TEST(Redistribute, KeepsTheMeansOfEveryMethod) {
  test::for_each_part([](const MethodPlan& plan) {
    for (const Topology before : {Topology{4, 1}, Topology{2, 2}}) {
      MethodPlan saving = plan;
      saving.topology = before;
      const TempFolder folder;
      Means means;
      save(saving, folder / "step", means);
      for (const Topology after : {Topology{8, 1}, Topology{3, 1}, Topology{2, 1}, Topology{1, 3}, Topology{1, 1}}) {
        MethodPlan loading = plan;
        loading.topology = after;
        Means loaded;
        const std::string what =
            detail::concat(before.nodes, "x", before.workers_per_node, " to ", after.nodes, "x", after.workers_per_node,
                           ", ", plan.optimizer, " behind ", plan.exchange);
        SCOPED_TRACE(what);
        EXPECT_EQ(load(loading, folder / "step", loaded)
                      .find(detail::concat("the checkpoint was saved by ", before.nodes, " × ", before.workers_per_node,
                                           " workers, this run has ", after.nodes)),
                  0u);
        means.expect_kept_in(loaded, what);
      }
    }
  });
}

TEST(Redistribute, ShardsGoToTheirNewOwners) {
  for (const char* sharding : {"zero1", "zero2", "zero3"}) {
    MethodPlan plan{
        .optimizer = "adamw", .exchange = "loco", .sharding = sharding, .parameter_wire = "bf16", .topology = {2, 2}};
    const TempFolder folder;
    Means means, loaded;
    save(plan, folder / "step", means);
    plan.topology = {3, 1};
    const std::string said = load(plan, folder / "step", loaded);
    means.expect_kept_in(loaded, sharding);
    EXPECT_NE(said.find("moved to the workers that now own the values: optimizer/m, optimizer/v"), std::string::npos)
        << said;
    EXPECT_NE(said.find("with the mean over the workers kept: exchange/e"), std::string::npos) << said;
  }
}

TEST(Redistribute, ShardsOfNodesGoToTheirNewOwners) {
  for (const Topology after : {Topology{1, 3}, Topology{3, 2}}) {
    MethodPlan plan{.optimizer = "adamw", .sharding = "hybrid", .topology = {2, 2}};
    const TempFolder folder;
    Means means, loaded;
    save(plan, folder / "step", means);
    plan.topology = after;
    (void)load(plan, folder / "step", loaded);
    means.expect_kept_in(loaded, "hybrid");
  }
}

// The errors of an exchange with a scale per block cannot be read without the shards of the saved run.
TEST(Redistribute, ErrorsWithAScalePerBlockOfAShardBeginAnew) {
  for (const Topology after : {Topology{4, 2}, Topology{3, 1}, Topology{2, 3}}) {
    MethodPlan plan{.optimizer = "adamw", .exchange = "loco", .sharding = "hybrid", .topology = {2, 2}};
    const TempFolder folder;
    Means means, loaded;
    save(plan, folder / "step", means);
    plan.topology = after;
    const std::string said = load(plan, folder / "step", loaded);
    EXPECT_NE(said.find("begins anew, because the scales belong to the shards of the saved run: exchange/e, "
                        "exchange/scale"),
              std::string::npos)
        << said;
    loaded.expect_all("exchange/e", 0);
    loaded.expect_all("exchange/scale", 1);
    means.forget("exchange/");
    means.expect_kept_in(loaded, "loco behind hybrid");
    Means rolled_back;
    plan.after_step = [&](DataParallel& replica, Communicator& comm) {
      if (replica.steps() != 5) return;
      CheckpointExtras extras;
      (void)load_checkpoint(folder / "step", replica, comm, extras);
      rolled_back.add(replica);
    };
    (void)load(plan, folder / "step", loaded);
    rolled_back.expect_all("exchange/e", 0);
  }
}

// A single worker has no server errors. After a rollback, those of two workers begin anew.
TEST(Redistribute, NewErrorsAreZeroAfterARollback) {
  for (const char* name : {"one_bit_sgd", "ef_signsgd"}) {
    MethodPlan plan{.optimizer = "sgd", .exchange = name, .topology = {1, 1}};
    const TempFolder folder;
    Means means, loaded, rolled_back;
    save(plan, folder / "step", means);
    plan.topology = {2, 1};
    plan.after_step = [&](DataParallel& replica, Communicator& comm) {
      if (replica.steps() != 5) return;
      CheckpointExtras extras;
      (void)load_checkpoint(folder / "step", replica, comm, extras);
      rolled_back.add(replica);
    };
    const std::string said = load(plan, folder / "step", loaded);
    EXPECT_NE(said.find("begins anew, because the saved run has none for some values: exchange/server_e"),
              std::string::npos)
        << said;
    rolled_back.expect_all("exchange/server_e", 0);
  }
}

// The checkpoints of 1-bit Adam are from the warm-up, and from later steps.
TEST(Redistribute, ShardsOfNodesOfOptimizersThatCommunicate) {
  for (const std::string name : {"birder", "one_bit_adam", "zero_one_adam", "one_bit_lamb"})
    for (const int64_t warmup : {1, 10})
      for (const Topology after : {Topology{1, 2}, Topology{3, 2}, Topology{2, 3}, Topology{4, 1}}) {
        MethodPlan plan{.optimizer = name, .sharding = "hybrid", .topology = {2, 2}};
        plan.change = [&](DataParallelOptions& o) {
          if (o.optimizer.has("warmup_steps")) o.optimizer.set("warmup_steps", warmup);
        };
        const std::string what =
            detail::concat(name, ", warm-up of ", warmup, ", to ", after.nodes, "x", after.workers_per_node);
        SCOPED_TRACE(what);
        const TempFolder folder;
        Means means, loaded;
        save(plan, folder / "step", means);
        plan.topology = after;
        (void)load(plan, folder / "step", loaded);
        means.expect_kept_in(loaded, what);
      }
}

// After the load, replicas stay identical at the end of the warm-up and in refreshes. Shards are whole parameters, or
// blocks that divide them.
TEST(Redistribute, NodesAgreeOnTheEndOfTheWarmup) {
  for (const std::string name : {"one_bit_adam", "one_bit_lamb"})
    for (const bool refresh : {true, false})
      for (const auto& [before, after] : {std::pair{Topology{2, 2}, Topology{3, 2}},
                                          {Topology{4, 2}, Topology{3, 2}},
                                          {Topology{2, 2}, Topology{4, 1}}}) {
        SCOPED_TRACE(detail::concat(name, refresh ? ", refresh, " : ", ", before.nodes, "x", before.workers_per_node));
        MethodPlan plan{.optimizer = name, .sharding = "hybrid", .topology = before, .sizes = {9000, 40, 20000, 300}};
        plan.bucket_bytes = 1 << 20;
        plan.change = [&](DataParallelOptions& o) {
          o.optimizer.set("warmup_steps", 20).set("beta2", 0.9).set("refresh_variance", refresh).set("block_size", 512);
        };
        const TempFolder folder;
        plan.gradients.resize(10);
        std::iota(plan.gradients.begin(), plan.gradients.end(), 1);
        plan.after_step = [&](DataParallel& replica, Communicator& comm) {
          if (replica.steps() == 10) save_checkpoint(folder / "step", replica, comm);
        };
        train_by(plan);
        plan.topology = after;
        std::string end;
        plan.gradients.resize(30);
        std::iota(plan.gradients.begin(), plan.gradients.end(), 11);
        plan.before_steps = [&](DataParallel& replica, Communicator& comm) {
          CheckpointExtras extras;
          load_checkpoint(folder / "step", replica, comm, extras);
        };
        plan.after_step = [&](DataParallel& replica, Communicator& comm) {
          replica.check_replicas();
          const std::string event = replica.optimizer().event(replica.steps());
          if (comm.rank == 0) end += event;
        };
        EXPECT_EQ(test::error_or_none([&] { train_by(plan); }), "");
        EXPECT_NE(end.find("the warm-up ended after step"), std::string::npos) << end;
      }
}

// A single worker has no server error. Two workers start without errors from its checkpoint; one worker drops theirs.
TEST(Redistribute, ReportsNewAndUnusedState) {
  MethodPlan plan{.optimizer = "sgd", .exchange = "ef_signsgd", .topology = {1, 1}};
  const TempFolder folder;
  Means means, loaded;
  save(plan, folder / "one", means);
  plan.topology = {2, 1};
  EXPECT_NE(load(plan, folder / "one", loaded)
                .find("begins anew, because the saved run has none for some values: exchange/server_e"),
            std::string::npos);
  save(plan, folder / "two", means);
  plan.topology = {1, 1};
  EXPECT_NE(load(plan, folder / "two", loaded).find("not used, because this run has no such state: exchange/server_e"),
            std::string::npos);
}

TEST(Redistribute, WeightsAreTheSharesOfTheSavedRanks) {
  EXPECT_EQ(checkpoint::weights_of(2, 4, 1), (std::vector<double>{1, 0}));
  EXPECT_EQ(checkpoint::weights_of(4, 2, 1), (std::vector<double>{0, 0, 0.5, 0.5}));
  EXPECT_EQ(checkpoint::weights_of(1, 3, 2), (std::vector<double>{1}));
  for (int j = 0; j < 3; ++j) {
    const std::vector<double> weights = checkpoint::weights_of(4, 3, j);
    EXPECT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0), 1, 1e-15);
  }
  EXPECT_EQ(checkpoint::weights_of(4, 3, 0), (std::vector<double>{0.75, 0.25, 0, 0}));
}

// Buffers are averaged; state that belongs to a rank's own data is unchanged.
TEST(Redistribute, TensorsAndNumbersOfTheProgram) {
  MethodPlan plan{.optimizer = "sgdm", .topology = {4, 1}, .gradients = {1}};
  const TempFolder folder;
  const auto extras_of = [](const Communicator& comm, double factor) {
    CheckpointExtras extras;
    extras.tensors["mean"] = Tensor::full({3}, factor * comm.rank);
    extras.own["stream"] = Tensor::full({2}, factor * comm.rank);
    extras.numbers["step"] = factor * 7;
    return extras;
  };
  plan.after_step = [&](DataParallel& replica, Communicator& comm) {
    save_checkpoint(folder / "step", replica, comm, extras_of(comm, 1));
  };
  train_by(plan);
  plan.gradients = {};
  plan.topology = {2, 1};
  plan.before_steps = [&](DataParallel& replica, Communicator& comm) {
    CheckpointExtras extras = extras_of(comm, 0);
    const std::string said = load_checkpoint(folder / "step", replica, comm, extras);
    EXPECT_NE(said.find("; averaged over the workers: mean; begins anew, because the workers have other data: stream"),
              std::string::npos)
        << said;
    EXPECT_EQ(extras.tensors.at("mean").item(2), comm.rank == 0 ? 0.5 : 2.5);
    EXPECT_EQ(extras.own.at("stream").item(0), 0);
    EXPECT_EQ(extras.numbers.at("step"), 7);
  };
  train_by(plan);
}

// A resumed run may freeze other parameters than the saved run.
TEST(Redistribute, NewlyFrozenParametersStay) {
  for (const auto& [mask, before] : {std::pair{"automatic", ""}, {"automatic", "p2"}, {"none", ""}, {"none", "p2"}}) {
    SCOPED_TRACE(testing::Message() << mask << " " << before);
    const auto set = [mask = mask](const char* frozen) {
      return [=](DataParallelOptions& o) { o.optimizer.set("mask", mask).set("frozen", frozen); };
    };
    MethodPlan plan{.optimizer = "birder", .gradients = {1, 2, 3, 4, 5, 6}};
    plan.change = set(before);
    const TempFolder folder;
    MethodOutcome ignored;
    const int64_t saved = save_in_between(plan, folder / "step", &ignored);
    plan.change = set("p1");
    plan.gradients.erase(plan.gradients.begin(), plan.gradients.begin() + static_cast<std::ptrdiff_t>(saved));
    plan.before_steps = [&](DataParallel& replica, Communicator& comm) {
      CheckpointExtras extras;
      load_checkpoint(folder / "step", replica, comm, extras);
    };
    const std::vector<std::vector<float>> x = train_by(plan).x;
    const auto moved = [&](int64_t begin, int64_t end) {  // after the first resumed step
      return !std::equal(x[1].begin() + begin, x[1].begin() + end, x.back().begin() + begin);
    };
    EXPECT_FALSE(moved(40, 740)) << "p1 is frozen";
    EXPECT_TRUE(moved(740, 804)) << "p2 is not frozen";
  }
}

}  // namespace redistribute_test
}  // namespace godwit
