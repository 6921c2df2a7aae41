#include "optim/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/safetensors.h"
#include "optim/checkpoint_files.h"
#include "tests/optim/checkpoint_harness.h"

namespace godwit {
namespace checkpoint_test {

using test::expect_resumed_alike;
using test::for_each_method;
using test::MethodOutcome;
using test::MethodPlan;
using test::save_in_between;
using test::train_by;

constexpr int kNewestVersion = 3;

TEST(Checkpoint, EveryMethodContinuesWithTheSameBits) {
  for_each_method([](const MethodPlan& plan) { expect_resumed_alike(plan); });
}

TEST(Checkpoint, ShardedRunsContinueWithTheSameBits) {
  for (const char* exchange : {"dense", "loco", "zeropp", "loco_zeropp"})
    for (const char* sharding : {"zero1", "zero2", "zero3", "hybrid"})
      for (const char* wire : {"f32", "bf16"}) {
        SCOPED_TRACE(std::string(exchange) + " " + sharding + " " + wire);
        expect_resumed_alike(
            {.optimizer = "adamw", .exchange = exchange, .sharding = sharding, .parameter_wire = wire});
      }
}

TEST(Checkpoint, HybridShardedRunsContinueWithTheSameBits) {
  for (const char* name : {"birder", "one_bit_adam", "one_bit_lamb", "zero_one_adam", "adafactor"}) {
    SCOPED_TRACE(name);
    MethodPlan plan{.optimizer = name, .sharding = "hybrid"};
    plan.change = [](DataParallelOptions& o) {
      if (o.optimizer.has("warmup")) o.optimizer.set("warmup", "fixed");
    };
    expect_resumed_alike(plan);
  }
}

TEST(Checkpoint, OtherOptionsTopologiesAndSkippedStepsContinueWithTheSameBits) {
  for (const Topology topology : {Topology{1, 1}, {3, 1}, {1, 3}})
    expect_resumed_alike({.optimizer = "birder", .topology = topology});
  MethodPlan plan{.optimizer = "birder"};
  plan.change = [](DataParallelOptions& o) {
    o.optimizer.set("moments", "bf16")
        .set("errors", "int8")
        .set("mask", "automatic")
        .set("t0", 2);
  };
  expect_resumed_alike(plan);
  plan.change = [](DataParallelOptions& o) { o.optimizer.set("collective", "all_gather"); };
  expect_resumed_alike(plan);
  for (const char* name : {"one_bit_adam", "one_bit_lamb"}) {  // saved in a warm-up whose end is decided later
    MethodPlan warm{.optimizer = name};
    warm.change = [](DataParallelOptions& o) { o.optimizer.set("warmup_steps", 5).set("beta2", 0.5); };
    expect_resumed_alike(warm);
  }
}

TEST(Checkpoint, EmptyParametersHaveNoState) {
  for (const char* name : {"adamw", "birder", "one_bit_adam", "one_bit_lamb", "lamb"}) {
    SCOPED_TRACE(name);
    expect_resumed_alike({.optimizer = name, .sizes = {40, 0, 0, 64, 0}});
  }
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
  expect_refused("was saved by a run with \"adamw, dense, none\"", [](MethodPlan& p) { p.optimizer = "lamb"; });
  expect_refused("this run has \"adamw, loco, none\"", [](MethodPlan& p) { p.exchange = "loco"; });
  expect_refused("1060 parameters, this run has 1061", [](MethodPlan& p) { p.sizes = {40, 701, 64, 256}; });
  expect_refused("p1 is [700]", [](MethodPlan& p) { p.sizes = {700, 40, 64, 256}; });
}

TEST_F(SavedCheckpoint, DamageIsFoundAndNamesTheFile) {
  const std::string remedy = "; the checkpoint is corrupt: remove the folder " + (folder_ / "step-3") +
                             " to continue from the checkpoint before it";
  for (const char* name : {"model.safetensors", "rank-00000.safetensors", "rank-00003.safetensors"}) {
    const Bytes good = read(file(name));
    Bytes bad = good;
    bad[bad.size() / 2] ^= 1;
    write(file(name), bad);
    expect_refused(file(name) + ": its checksum differs from that of the manifest" + remedy);
    bad.pop_back();
    write(file(name), bad);
    expect_refused(file(name) + ": has " + std::to_string(bad.size()) + " bytes");
    std::filesystem::remove(file(name));
    expect_refused(file(name) + ": cannot be read (no such file)" + remedy);
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
  with("\"version\": 3", "\"version\": 4");
  expect_refused(
      "version 4 is not readable; this program reads versions 1 to 3; continue with the program that wrote it");
  with("\"nodes\": 2", "\"nodes\": -2");
  expect_refused("\"nodes\" is -2");
  with("\"nodes\": 2", "\"nodes\": 1048576");
  expect_refused("has 1048576 × 2 workers, expected at most 1048576");
  with("\"bytes\": ", "\"bytes\": -");
  expect_refused("needs \"bytes\" and \"xxh3_128\"");
  with("\"version\"", "\"versio\"");
  expect_refused("has no \"version\"");
  with("rank-00002", "rank-00009");
  std::filesystem::copy_file(file("rank-00002.safetensors"), file("rank-00009.safetensors"));
  expect_refused("does not list rank-00002.safetensors");
  with("xxh3_128", "md5");
  expect_refused("needs \"bytes\" and \"xxh3_128\"");
  write(file("manifest.json"), {'{'});
  expect_refused("manifest.json: is not valid JSON");
  expect_refused("the checkpoint is corrupt: remove the folder ");
  std::filesystem::remove(file("manifest.json"));
  ASSERT_EQ(::mkfifo(file("manifest.json").c_str(), 0600), 0);
  expect_refused("manifest.json: is not a regular file");
  std::filesystem::remove(file("manifest.json"));
  expect_refused("is no complete checkpoint");
}

TEST(Checkpoint, OnlyCompleteCheckpointsAreFoundAndNoneIsOverwritten) {
  const TempFolder folder;
  EXPECT_EQ(newest_checkpoint(folder.str()), "");
  EXPECT_EQ(newest_checkpoint(folder / "missing"), "");
  std::filesystem::create_symlink("loop", folder / "loop");
  EXPECT_NE(error_of([&] { newest_checkpoint(folder / "loop"); }).find("loop: cannot be read ("), std::string::npos);
  std::filesystem::create_symlink("gone", folder / "link");
  EXPECT_NE(error_of([&] { newest_checkpoint(folder / "link"); }).find("link: cannot be read ("), std::string::npos);
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

// State of the checkpoint that the run does not use is reported, also if the number of ranks changes.
TEST(Checkpoint, ReportsStateThatIsNotUsed) {
  const TempFolder folder;
  MethodPlan plan{.optimizer = "adamw", .gradients = {1}};
  const auto extras_of = [](DataParallel& replica, bool all) {
    CheckpointExtras extras;
    extras.tensors["buffer/mean"] = Tensor::full({3}, 1);
    if (!all) extras.optional["guard/seen"] = Tensor::full({1}, 5);
    if (!all) return extras;
    extras.state = replica.optimizer().state();
    for (StateTensor& part : extras.state) part.name = "ema";
    extras.state.resize(1);
    extras.tensors["average/1"] = extras.tensors["average/2"] = Tensor::full({2}, 1);
    return extras;
  };
  plan.after_step = [&](DataParallel& replica, Communicator& comm) {
    save_checkpoint(folder / "step", replica, comm, extras_of(replica, true));
  };
  train_by(plan);
  plan = {.optimizer = "adamw", .gradients = {}};
  for (const Topology& topology : {Topology{2, 2}, Topology{1, 2}}) {
    plan.topology = topology;
    plan.before_steps = [&](DataParallel& replica, Communicator& comm) {
      CheckpointExtras extras = extras_of(replica, false);
      const std::string said = load_checkpoint(folder / "step", replica, comm, extras);
      const bool same = topology.nodes == 2;
      std::vector<std::string> expected{"average"};
      if (same && comm.rank == 0) expected.push_back("extra/ema");  // rank 0 has the state that all ranks share
      EXPECT_EQ(extras.unused, expected);
      EXPECT_EQ(extras.optional.at("guard/seen").item(0), 5) << "the checkpoint has none";
      EXPECT_EQ(said.find("no such state: extra/ema") == std::string::npos, same) << said;
    };
    train_by(plan);
  }
}

// An interrupted save leaves a folder with a temporary name, which the next save replaces.
TEST(Checkpoint, ReplacesAPartialCheckpoint) {
  const TempFolder folder;
  write(folder / "step.partial/rank-00009.safetensors", {1, 2, 3});
  MethodOutcome ignored;
  EXPECT_GT(save_in_between({.optimizer = "adamw"}, folder / "step", &ignored), 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "step.partial"));
  EXPECT_FALSE(std::filesystem::exists(folder / "step/rank-00009.safetensors"));
}

// The files hold the values at begin_checkpoint(), although training goes on while the files are written.
TEST(Checkpoint, TrainingGoesOnWhileItIsWritten) {
  const TempFolder folder;
  std::vector<std::unique_ptr<PendingCheckpoint>> pending(4);
  MethodPlan plan{.optimizer = "birder", .gradients = {1, 2, 3, 4, 5, 6}};
  plan.after_step = [&](DataParallel& replica, Communicator& comm) {
    auto& own = pending[static_cast<size_t>(comm.rank)];
    if (replica.steps() == 3) own = begin_checkpoint(folder / "step", replica, comm);
    if (replica.steps() < 6) return;
    own->finish(*comm.world);
    EXPECT_TRUE(own->complete());
    EXPECT_TRUE(comm.rank > 0 || own->bytes() > 4 * 1060);
  };
  const MethodOutcome whole = train_by(plan);
  EXPECT_EQ(newest_checkpoint(folder.str()), "");
  EXPECT_TRUE(std::filesystem::exists(folder / "step/manifest.json"));
  plan = {.optimizer = "birder", .gradients = {4, 5, 6}};
  plan.before_steps = [&](DataParallel& replica, Communicator& comm) {
    CheckpointExtras extras;
    EXPECT_EQ(load_checkpoint(folder / "step", replica, comm, extras), "");
  };
  EXPECT_TRUE(train_by(plan).same(whole));
}

// Versions 1 and 2 store parameters in memory order, version 3 in the order of weight files.
TEST(Checkpoint, OlderVersionsHaveFiltersInTheOrderOfMemory) {
  const TempFolder folder;
  const std::string step = folder / "step", model = step + "/model.safetensors", manifest = step + "/manifest.json";
  const std::map<std::string, FileLayout> layouts{{"filter", FileLayout::channels_first},
                                                  {"matrix", FileLayout::transposed}};
  const auto with_replica = [&](double begin, const std::function<void(DataParallel&, Communicator&)>& f) {
    run_local({1, 2}, [&](Communicator& comm) {
      std::vector<Parameter> parameters;
      for (const auto& [name, shape] : std::map<std::string, Shape>{{"filter", {2, 3, 5, 7}}, {"matrix", {3, 4}}}) {
        const Tensor values(shape, DType::f32);
        for (int64_t i = 0; i < values.numel(); ++i) values.data<float>()[i] = static_cast<float>(begin + i);
        parameters.push_back({name, Var(values, true), true, layouts.at(name)});
      }
      DataParallel replica(parameters, comm, {.optimizer = "adamw"});
      f(replica, comm);
    });
  };
  uint64_t expected = 0;
  with_replica(1, [&](DataParallel& replica, Communicator& comm) {
    save_checkpoint(step, replica, comm);
    if (comm.rank == 0) expected = replica.value_hash();
  });
  const auto expect_loads = [&](int version) {
    with_replica(1000, [&](DataParallel& replica, Communicator& comm) {
      CheckpointExtras extras;
      load_checkpoint(step, replica, comm, extras);
      EXPECT_EQ(replica.value_hash(), expected) << "version " << version;
    });
  };
  expect_loads(3);
  std::vector<std::pair<std::string, Tensor>> in_memory;
  for (const auto& [name, values] : load_safetensors(model)) {
    EXPECT_NE(values.shape(), from_file_layout(values, layouts.at(name)).shape());
    in_memory.emplace_back(name, from_file_layout(values, layouts.at(name)));
  }
  save_safetensors(model, in_memory, {});
  const checkpoint::Digest digest = checkpoint::digest_of(step, "model.safetensors");
  const Bytes text = read(manifest);
  nlohmann::json json = nlohmann::json::parse(text.begin(), text.end());
  json["files"]["model.safetensors"] = {{"bytes", digest.bytes}, {"xxh3_128", digest.xxh3_128}};
  for (const int version : {1, 2}) {
    json["version"] = version;
    const std::string changed = json.dump();
    write(manifest, Bytes(changed.begin(), changed.end()));
    expect_loads(version);
  }
}

// If a description cannot be written, no rank has a checkpoint. The next checkpoint contains the described files.
TEST(Checkpoint, DescriptionsAreFilesOfTheCheckpoint) {
  const TempFolder folder;
  const std::string step = folder / "step";
  MethodPlan plan{.optimizer = "adamw", .gradients = {1}};
  plan.after_step = [&](DataParallel& replica, Communicator& comm) {
    CheckpointExtras extras;
    extras.describe = [](const std::string& where) {
      write(where + "/config.json", {'{', '}'});
      fail("no space left");
    };
    const auto expect_error = [&](const std::string& text) {
      std::string error;
      try {
        save_checkpoint(step, replica, comm, extras);
      } catch (const CheckpointFailed& failed) {
        error = failed.what();
      }
      EXPECT_NE(error.find("rank 0: " + text), std::string::npos) << error;
      EXPECT_FALSE(std::filesystem::exists(step));
    };
    expect_error("no space left");
    extras.describe = [](const std::string&) { throw 7; };
    expect_error("unknown error");
    extras.describe = [](const std::string& where) { write(where + "/config.json", {'{', '}'}); };
    save_checkpoint(step, replica, comm, extras);
  };
  train_by(plan);
  EXPECT_EQ(read(step + "/config.json"), (Bytes{'{', '}'}));
  EXPECT_FALSE(std::filesystem::exists(step + "/description"));
  const Bytes text = read(step + "/manifest.json");
  EXPECT_TRUE(nlohmann::json::parse(text.begin(), text.end())["files"].contains("config.json"));
}

// If one rank cannot write its file, no rank has a checkpoint.
TEST(Checkpoint, FailsOnAllRanksIfOneCannotWrite) {
  const TempFolder folder;
  std::atomic<int> failed{0};
  MethodPlan plan{.optimizer = "adamw", .gradients = {1}};
  plan.after_step = [&](DataParallel& replica, Communicator& comm) {
    CheckpointExtras extras;
    if (comm.rank == 2) extras.tensors["same"] = Tensor::full({1}, 1), extras.own["same"] = Tensor::full({1}, 1);
    const auto pending = begin_checkpoint(folder / "step", replica, comm, extras);
    try {
      pending->finish(*comm.world);
    } catch (const CheckpointFailed& error) {
      EXPECT_NE(std::string(error.what()).find("rank 2: "), std::string::npos) << error.what();
      ++failed;
    }
    // Rank 0 stops waiting for the file of rank 2 within milliseconds.
    for (int i = 0; comm.rank == 0 && i < 50; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(2)))
      ASSERT_FALSE(pending->complete());
  };
  train_by(plan);
  EXPECT_EQ(failed, 4);
  EXPECT_FALSE(std::filesystem::exists(folder / "step"));
}

// Ranks divide a large model into files with HuggingFace's index. Rank 0 adds further tensors to the first file.
TEST(Checkpoint, ALargeModelHasSeveralFilesAndAnIndex) {
  const TempFolder folder;
  const Tensor mean = Tensor::full({1}, 3);
  MethodPlan plan{.optimizer = "adamw", .gradients = {1, 2}};
  plan.after_step = [&](DataParallel& replica, Communicator& comm) {
    CheckpointExtras extras;
    extras.model_file_bytes = 1000;
    extras.model["mean"] = mean;
    if (replica.steps() == 1) save_checkpoint(folder / "step", replica, comm, extras);
  };
  const MethodOutcome whole = train_by(plan);
  const Bytes bytes = read(folder / "step/model.safetensors.index.json");
  const auto index = nlohmann::json::parse(bytes.begin(), bytes.end());
  EXPECT_EQ(index["metadata"]["total_size"], 4 * 1061);
  const std::map<std::string, std::string> expected{{"mean", "model-00001-of-00004.safetensors"},
                                                    {"p0", "model-00001-of-00004.safetensors"},
                                                    {"p1", "model-00002-of-00004.safetensors"},
                                                    {"p2", "model-00003-of-00004.safetensors"},
                                                    {"p3", "model-00004-of-00004.safetensors"}};
  EXPECT_EQ((index["weight_map"].get<std::map<std::string, std::string>>()), expected);
  for (const auto& [name, file] : expected) EXPECT_EQ(load_safetensors(folder / ("step/" + file)).count(name), 1u);
  plan = {.optimizer = "adamw", .gradients = {2}};
  plan.before_steps = [&](DataParallel& replica, Communicator& comm) {
    CheckpointExtras extras{.model = {{"mean", mean}}};
    load_checkpoint(folder / "step", replica, comm, extras);
  };
  EXPECT_TRUE(train_by(plan).same(whole));
}

// Values 0, 1, 2, … in a parameter with a layout.
Parameter counting(const std::string& name, const Shape& shape, FileLayout layout, float first) {
  const Tensor values(shape, DType::f32, kCpu);
  for (int64_t i = 0; i < values.numel(); ++i) values.data<float>()[i] = first + static_cast<float>(i);
  return {name, Var(values, true), true, layout};
}

// PyTorch and transformers read the parameters by their names and shapes.
TEST(Checkpoint, ParametersHaveTheOrderOfWeightFiles) {
  const TempFolder folder;
  const auto parameters = [](float first) {
    return std::vector<Parameter>{counting("filter", {2, 1, 2, 3}, FileLayout::channels_first, first),
                                  counting("conv1d", {2, 3}, FileLayout::transposed, first),
                                  counting("linear", {2, 3}, FileLayout::as_in_memory, first)};
  };
  run_local({2, 1}, [&](Communicator& comm) {
    DataParallel replica(parameters(0), comm);
    CheckpointExtras extras;
    extras.describe = [](const std::string& to) { std::ofstream(to + "/config.json") << "{}"; };  // to: a folder
    save_checkpoint(folder / "step", replica, comm, extras);
  });
  const std::map<std::string, Tensor> saved = load_safetensors(folder / "step/model.safetensors");
  EXPECT_EQ(saved.at("filter").shape(), Shape({2, 3, 1, 2}));
  EXPECT_EQ(saved.at("filter").to_vector<float>(), (std::vector<float>{0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11}));
  EXPECT_EQ(saved.at("conv1d").shape(), Shape({3, 2}));
  EXPECT_EQ(saved.at("conv1d").to_vector<float>(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(saved.at("linear").to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(read(folder / "step/config.json"), (Bytes{'{', '}'}));
  EXPECT_FALSE(std::filesystem::exists(folder / "step/description"));
  const Bytes manifest = read(folder / "step/manifest.json");
  EXPECT_EQ(nlohmann::json::parse(manifest.begin(), manifest.end())["files"]["config.json"]["bytes"], 2);
  run_local({2, 1}, [&](Communicator& comm) {
    const std::vector<Parameter> own = parameters(100), expected = parameters(0);
    DataParallel replica(own, comm);
    CheckpointExtras extras;
    load_checkpoint(folder / "step", replica, comm, extras);
    for (size_t i = 0; i < own.size(); ++i)
      EXPECT_EQ(own[i].var.value().to_vector<float>(), expected[i].var.value().to_vector<float>()) << own[i].name;
  });
}

// A hash of the parameters, state and master weights of all ranks.
uint64_t hash_of(const MethodOutcome& outcome) {
  Hash all;
  for (const auto& ranks : {outcome.parameters, outcome.optimizer, outcome.exchange, outcome.masters})
    for (const test::Remains& remains : ranks)
      for (const auto& [name, value] : remains) all.add(name), all.add(value);
  return all.value();
}

// Checkpoints of earlier versions of Godwit, with the hash of their contents. With GODWIT_UPDATE=1 this program writes
// the checkpoint of its own version.
class CommittedCheckpoint : public testing::TestWithParam<int> {};

TEST_P(CommittedCheckpoint, IsRead) {
  const std::string folder = GODWIT_SOURCE_DIR "/tests/optim/checkpoints/version-" + std::to_string(GetParam());
  MethodPlan plan{.optimizer = "birder", .sizes = {40, 100}, .gradients = {1, 2, 3}};
  if (GetParam() == kNewestVersion && std::getenv("GODWIT_UPDATE")) {
    std::filesystem::remove_all(folder);
    MethodOutcome saved;
    ASSERT_EQ(save_in_between(plan, folder, &saved), 3);
    std::ofstream(folder + "/hash") << hash_of(saved) << "\n";
  }
  plan.gradients = {};
  plan.before_steps = [&](DataParallel& replica, Communicator& comm) {
    CheckpointExtras extras;
    load_checkpoint(folder, replica, comm, extras);
    EXPECT_EQ(replica.steps(), 3);
  };
  uint64_t expected = 0;
  std::ifstream(folder + "/hash") >> expected;
  EXPECT_EQ(hash_of(train_by(plan)), expected);
}
INSTANTIATE_TEST_SUITE_P(Versions, CommittedCheckpoint, testing::Range(1, kNewestVersion + 1));

}  // namespace checkpoint_test
}  // namespace godwit
