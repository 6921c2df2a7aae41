// Calls that save_checkpoint() and load_checkpoint() refuse.
#include "optim/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "optim/data_parallel.h"
#include "tests/optim/methods.h"
#include "tests/support.h"

namespace godwit {
namespace checkpoint_misuse_test {

using test::MethodPlan;
using test::train_by;

// A description must not replace the checkpoint's own files, whose checksums would then be those of the description.
TEST(CheckpointMisuse, DescriptionsHaveOtherNamesThanTheCheckpoint) {
  const TempFolder folder;
  MethodPlan plan{.optimizer = "adamw", .gradients = {1}};
  plan.after_step = [&](DataParallel& replica, Communicator& comm) {
    for (const char* name : {"model.safetensors", "model_best.safetensors", "rank-00001.safetensors", "manifest.json",
                             "sub/config.json"}) {
      CheckpointExtras extras;
      extras.describe = [&](const std::string& where) { write(where + "/" + name, {'{', '}'}); };
      const std::string error = error_of([&] { save_checkpoint(folder / "step", replica, comm, extras); });
      EXPECT_NE(error.find(name[0] == 's' ? "has sub, which is not a regular file" : std::string("has ") + name + ", "),
                std::string::npos)
          << error;
      EXPECT_FALSE(std::filesystem::exists(folder / "step")) << name;
      if (comm.rank == 0) {
        EXPECT_FALSE(std::filesystem::exists(folder / "step.partial/rank-00000.safetensors")) << name;
      }
    }
  };
  train_by(plan);
}

TEST(CheckpointMisuse, NamesOfDescriptionsMayHaveSpaces) {
  const TempFolder folder;
  MethodPlan plan{.optimizer = "adamw", .gradients = {1}};
  plan.after_step = [&](DataParallel& replica, Communicator& comm) {
    CheckpointExtras extras;
    extras.describe = [](const std::string& where) { write(where + "/a label  map.json", {'{', '}'}); };
    save_checkpoint(folder / "step", replica, comm, extras);
    EXPECT_TRUE(std::filesystem::exists(folder / "step/a label  map.json"));
    EXPECT_EQ(load_checkpoint(folder / "step", replica, comm, extras), "");
  };
  train_by(plan);
}

// Such as the config.json of a model, and a manifest with fewer workers, whose state would then be lost.
TEST(CheckpointMisuse, DamagedDescriptionsAndManifestsAreRefused) {
  const TempFolder folder;
  const std::string step = folder / "step";
  MethodPlan plan{.optimizer = "adamw", .gradients = {1}};
  plan.after_step = [&](DataParallel& replica, Communicator& comm) {
    CheckpointExtras extras;
    extras.describe = [](const std::string& where) { write(where + "/config.json", {'{', '}'}); };
    save_checkpoint(step, replica, comm, extras);
    const Bytes good = read(step + "/manifest.json");
    std::string fewer(good.begin(), good.end());
    fewer.replace(fewer.find("\"nodes\": 2"), 10, "\"nodes\": 1");
    const auto expect_refused = [&](const std::string& file, const Bytes& content, const std::string& words) {
      comm.world->barrier("test");
      if (comm.rank == 0) write(step + "/" + file, content);
      comm.world->barrier("test");
      const std::string error = error_of([&] { load_checkpoint(step, replica, comm, extras); });
      EXPECT_NE(error.find(step + "/" + file + ": " + words + "; the checkpoint is corrupt: remove the folder " + step),
                std::string::npos)
          << error;
    };
    expect_refused("config.json", {'[', ']'}, "its checksum differs from that of the manifest");
    expect_refused("manifest.json", Bytes(fewer.begin(), fewer.end()),
                   "lists rank-00002.safetensors, but the run had 2 workers");
  };
  train_by(plan);
}

TEST(CheckpointMisuse, BadArgumentsAreNamed) {
  MethodPlan plan{.optimizer = "adamw", .gradients = {1}};
  plan.after_step = [&](DataParallel& replica, Communicator& comm) {
    for (const char* path : {"", "/"}) {
      const std::string error = error_of([&] { save_checkpoint(path, replica, comm); });
      EXPECT_NE(error.find(detail::concat("the path is '", path, "', expected a new folder")), std::string::npos)
          << error;
    }
    const TempFolder folder;
    CheckpointExtras extras;
    extras.tensors["mean"] = Tensor();
    const std::string error = error_of([&] { save_checkpoint(folder / "step", replica, comm, extras); });
    EXPECT_NE(error.find("tensor/mean is an undefined tensor"), std::string::npos) << error;
  };
  train_by(plan);
}

TEST(CheckpointMisuse, ParametersThatDoNotFitAreNamed) {
  const TempFolder folder;
  run_local({1, 1}, [&](Communicator& comm) {
    const auto replica_of = [&](DType dtype) {
      return DataParallel({{"a", Var(Tensor::zeros({5}, dtype), true)}}, comm, {.optimizer = "sgd"});
    };
    DataParallel saved = replica_of(DType::f32), wide = replica_of(DType::f64);
    CheckpointExtras extras;
    extras.model["statistics"] = Tensor::zeros({3});
    save_checkpoint(folder / "step", saved, comm, extras);
    extras.model.clear();
    const auto error = [&](DataParallel& replica) {
      return error_of([&] { load_checkpoint(folder / "step", replica, comm, extras); });
    };
    EXPECT_NE(error(saved).find("has 2 parameters, but the model 1"), std::string::npos);
    EXPECT_NE(error(wide).find("a is [5] float32, but the model has [5] float64"), std::string::npos);
  });
}

// LoCo's scales belong to blocks of the shards.
TEST(CheckpointMisuse, ScalesOfOtherShardsAreRefused) {
  const TempFolder folder;
  MethodPlan plan{.optimizer = "adamw", .exchange = "loco", .sharding = "hybrid", .gradients = {1}};
  plan.after_step = [&](DataParallel& replica, Communicator& comm) {
    save_checkpoint(folder / "step", replica, comm);
  };
  train_by(plan);
  plan.bucket_bytes = 1 << 20;
  plan.after_step = [&](DataParallel& replica, Communicator& comm) {
    CheckpointExtras extras;
    load_checkpoint(folder / "step", replica, comm, extras);
  };
  const std::string error = error_of([&] { train_by(plan); });
  EXPECT_NE(error.find("was saved with other shards; with sharding hybrid and a scale per block"), std::string::npos)
      << error;
}

// The workers read folders of different runs whose parameters, which do not change, are equal.
TEST(CheckpointMisuse, StateOfDifferentRunsIsRefused) {
  const TempFolder folder;
  MethodPlan plan{.optimizer = "adamw", .lr = 0};
  for (const int gradient : {1, 2}) {
    plan.gradients = {gradient};
    plan.after_step = [&](DataParallel& replica, Communicator& comm) {
      save_checkpoint(folder / std::to_string(gradient), replica, comm);
    };
    train_by(plan);
  }
  plan.after_step = [&](DataParallel& replica, Communicator& comm) {
    CheckpointExtras extras;
    load_checkpoint(folder / (comm.rank == 0 ? "1" : "2"), replica, comm, extras);
  };
  const std::string error = error_of([&] { train_by(plan); });
  EXPECT_NE(error.find("the optimizer's shared state of the checkpoint"), std::string::npos) << error;
  EXPECT_TRUE(error.ends_with("; resume with the optimizer's options of the saved run")) << error;
}

// Within a step, or after a step that failed, parameters and step count do not fit together.
TEST(CheckpointMisuse, IsRefusedWithinAStepAndAfterAFailedStep) {
  const TempFolder folder;
  // With clipping, the error is that of the norm, after all buckets have been exchanged.
  for (const auto& [name, norm] : {std::pair{"none", 0}, {"none", 1}, {"zero1", 0}, {"zero3", 0}, {"zero3", 1}}) {
    const std::string sharding = name;
    const int clip = norm;
    MethodPlan plan{.optimizer = "adamw", .sharding = sharding, .gradients = {1}, .clip = static_cast<double>(clip)};
    plan.after_step = [&](DataParallel& replica, Communicator& comm) {
      const std::string saved = folder / (sharding + std::to_string(clip));
      save_checkpoint(saved, replica, comm);
      CheckpointExtras extras;
      const auto expect_refused = [&](const std::string& why) {
        const std::string error = error_of([&] { save_checkpoint(folder / "x", replica, comm); });
        EXPECT_NE(error.find(why), std::string::npos) << sharding << ": " << error;
        const std::string loading = error_of([&] { load_checkpoint(saved, replica, comm, extras); });
        EXPECT_NE(loading.find(why), std::string::npos) << sharding << ": " << loading;
      };
      std::vector<Var> vars;
      for (const Bucket& bucket : replica.buckets())
        for (const Slot& slot : bucket.slots) vars.push_back(slot.var);
      replica.begin_step(1e-3);
      expect_refused(": step 2 failed or was not finished; call finish_step() first");
      const Var loss = test::method_loss(vars, 2, 0, static_cast<double>(NAN), 0);
      EXPECT_NE(error_of([&] {
                  replica.backward(loss);
                  replica.finish_step();
                }),
                "");
      expect_refused(clip ? ": step 2 failed" : "is nan");
      fail("the test ends here");
    };
    EXPECT_NE(error_of([&] { train_by(plan); }).find("the test ends here"), std::string::npos);
  }
}

}  // namespace checkpoint_misuse_test
}  // namespace godwit
