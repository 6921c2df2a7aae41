// Runs that end early and continue from a checkpoint. The programs are run from the command line.
#define XXH_INLINE_ALL
#define XXH_NO_INLINE_HINTS 1
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <chrono>
#include <filesystem>
#include <set>

#include "engine/safetensors.h"
#include "optim/checkpoint.h"
#include "tests/apps/programs/train_resnet.h"

namespace godwit {
namespace resume_test {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr, ::testing::Not;

std::string xxh3_128(const std::string& bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

class Resume : public TrainResnet {
 protected:
  std::string checkpoints() const { return (run_dir() / "checkpoints").string(); }
  // Trains with a checkpoint after every `every` steps, all of which are kept. Results and weights of the run.
  std::pair<std::string, std::string> trained(const std::string& flags, int every) {
    fs::remove_all(run_dir());
    const Outcome outcome =
        train(flags + " --set log_every=1 --set checkpoint.keep=100 --checkpoint-every " + std::to_string(every));
    EXPECT_EQ(outcome.exit_code, 0) << flags << ": " << outcome.err;
    return remains();
  }
  std::pair<std::string, std::string> remains() const {
    return {results(metrics()), read_file(run_dir() / "weights.safetensors")};
  }
  // Continues the run from the checkpoint of a step.
  Outcome continued_from(int64_t step, const std::string& flags = "") {
    for (const auto& [other, folder] : checkpoints_in(checkpoints()))
      if (other > step) fs::remove_all(folder);
    return train(flags, "--resume run");
  }
};

// From the middle of an epoch, from its end, and from the last step.
TEST_F(Resume, GivesTheSameBitsAsAnUninterruptedRun) {
  const std::string flags = "--max-steps 20 --nodes 2 --batch 16 ";  // 8 steps per epoch
  for (const char* method : {"--optimizer birder --set ema.decay=0.9 --accumulation 2", "--optimizer one_bit_adam",
                             "--optimizer adamw --exchange loco --set exchange.sharding=zero2",
                             "--optimizer adamw --set ema.decay=0.9 --set exchange.sharding=zero3",
                             "--optimizer adamw --workers-per-node 2 --exchange loco --set exchange.sharding=hybrid"}) {
    const auto whole = trained(flags + method, 2);
    for (const int64_t step : {20, 16, 14, 2}) {
      if (!checkpoints_in(checkpoints()).contains(step)) continue;
      const Outcome outcome = continued_from(step);
      ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
      EXPECT_TRUE(remains() == whole) << method << " from step " << step;
    }
  }
}

// The result does not depend on buckets and threads.
TEST_F(Resume, WithOtherBucketsAndThreads) {
  const auto whole = trained("--optimizer birder --nodes 2 --workers-per-node 2 --batch 16 --max-steps 6", 3);
  const Outcome outcome = continued_from(3, "--set bucket.mib=0.01 --set bucket.first_mib=0.01 --threads 2");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(remains().second, whole.second);
}

TEST_F(Resume, SynchronizedBatchNormMakesTheStatisticsEqual) {
  trained("--optimizer birder --nodes 2 --batch 16 --max-steps 6", 3);
  const auto statistics = [&](int step, int rank) {
    const std::string file = checkpoints() + "/step-" + std::to_string(step) + "/rank-0000" + std::to_string(rank);
    std::map<std::string, std::vector<float>> all;
    for (const auto& [name, x] : map_safetensors(file + ".safetensors"))
      if (name.starts_with("tensor/buffer/")) all[name].assign(x.data<float>(), x.data<float>() + x.numel());
    return all;
  };
  EXPECT_NE(statistics(3, 0), statistics(3, 1));
  const Outcome outcome = continued_from(3, "--set model.sync_bn=true");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_FALSE(statistics(6, 0).empty());
  EXPECT_EQ(statistics(6, 0), statistics(6, 1));
}

// A run with bucket.mib=auto measures before it trains, and writes the picked size to config.json. The same command
// then continues with these buckets, without another measurement, and gives the result of this size.
TEST_F(Resume, KeepsThePickedBucketSize) {
  const std::string flags = "--optimizer birder --nodes 2 --batch 16 --max-steps 6 ";
  const auto whole = trained(flags, 3);
  EXPECT_TRUE(trained(flags + "--set bucket.mib=auto", 3) == whole);
  json config = json::parse(read_file(run_dir() / "config.json"));
  EXPECT_GE(std::stoi(config["bucket"]["mib"].get<std::string>()), 1);
  config["bucket"]["mib"] = 0.5;
  write_file(run_dir() / "config.json", config.dump());
  const Outcome outcome = continued_from(3, "--set bucket.mib=auto");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("bucket.mib=0.5"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("picks")));
  EXPECT_EQ(remains().second, whole.second);
}

// Both forms of --resume keep the picked type, because it rounds gradients. The test writes the type that the
// measurement does not pick to config.json.
TEST_F(Resume, KeepsThePickedWire) {
  const std::string flags = "--optimizer adamw --nodes 2 --batch 16 --max-steps 6 ";
  const auto f32 = trained(flags, 3), bf16 = trained(flags + "--set exchange.wire=bf16", 3);
  ASSERT_FALSE(f32 == bf16);
  const auto whole = trained(flags + "--set exchange.wire=auto", 3);
  json config = json::parse(read_file(run_dir() / "config.json"));
  const std::string picked = config["exchange"]["wire"];
  EXPECT_TRUE(whole == (picked == "bf16" ? bf16 : f32)) << picked;
  const std::string other = picked == "bf16" ? "f32" : "bf16";
  config["exchange"]["wire"] = other;
  for (const char* resume : {"--resume run", "--data data --run-dir run --resume auto"}) {
    trained(flags + "--set exchange.wire=" + other, 3);
    write_file(run_dir() / "config.json", config.dump());
    fs::remove_all(run_dir() / "checkpoints/step-6");
    const Outcome outcome = train(flags + "--set log_every=1 --set exchange.wire=auto", resume);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, Not(HasSubstr("picks")));
    EXPECT_TRUE(remains() == (other == "bf16" ? bf16 : f32)) << resume;
  }
}

TEST_F(Resume, NamesTheOptionsThatHaveChanged) {
  const std::string changed = "notice: changed since the run was saved: ";
  trained("--optimizer adamw --exchange powersgd --set exchange.rank=2 --batch 16 --max-steps 6", 3);
  EXPECT_EQ(continued_from(3).out.find(changed), std::string::npos);
  const std::string out = continued_from(3, "--seed 2 --set exchange.rank=1 --lr 0.25").out;
  const std::string notice =
      changed +
      "exchange.rank 1 (was 2), optimizer.lr 0.25 (was 0.005), seed 2 (was 1); another seed changes the order";
  EXPECT_THAT(out, HasSubstr(notice));
  const std::string other = train("--max-steps 8 --init-weights other.safetensors", "--resume run").out;
  EXPECT_THAT(other, HasSubstr("init_weights \"other.safetensors\" (was \"\"), "));
  EXPECT_THAT(other, HasSubstr("; a resumed run has the parameters of its checkpoint instead\n"));
}

TEST_F(Resume, NamesTheListsThatHaveChanged) {
  const std::string changed = "notice: changed since the run was saved: schedule.milestones ";
  trained("--optimizer sgdm --batch 16 --max-steps 6 --set schedule=multi_step --set schedule.milestones=5,9", 3);
  EXPECT_THAT(continued_from(3, "--set schedule.milestones=5").out, HasSubstr(changed + "[5.0] (was [5.0,9.0])\n"));
  EXPECT_THAT(continued_from(3, "--set data.mean=0.5 --set data.std=0.25").out,
              HasSubstr("data.mean [0.5] (was []), "));
}

// The best value is one of the evaluation data, and the window of the guard one of the training data.
TEST_F(Resume, BestEvaluationAndSpikeGuardBeginAnewWithOtherData) {
  const std::string flags =
      "--optimizer sgdm --lr 0.01 --batch 16 --set spike.guard=skip --set checkpoint.best=test_loss";
  ASSERT_EQ(train(flags + " --max-steps 32").exit_code, 0);
  EXPECT_THAT(train("--max-steps 48", "--resume run").out, Not(HasSubstr("begins anew")));
  write_images(folder_ / "data", "t10k", 40, 40);
  const Outcome outcome = train("--max-steps 64", "--resume run");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("notice: the best checkpoint of the saved run, of step "));
  EXPECT_THAT(outcome.out, HasSubstr(", is no longer kept as the best, because it was evaluated on other data\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("the spike guard begins anew")));
  std::map<std::string, std::string> numbers;
  const std::map<std::string, Tensor> saved =
      load_safetensors(checkpoints() + "/step-64/rank-00000.safetensors", &numbers);
  EXPECT_EQ(std::stod(numbers.at("number/best_step")), 64);
  EXPECT_EQ(saved.at("tensor/spike/seen").item(0), 64);
  write_images(folder_ / "data", "train", 257, 257);
  const Outcome trained_on_other = train("--max-steps 66", "--resume run");
  EXPECT_THAT(trained_on_other.out, HasSubstr("notice: the spike guard begins anew, because "));
  EXPECT_THAT(trained_on_other.out, Not(HasSubstr("is no longer kept as the best")));
  EXPECT_EQ(load_safetensors(checkpoints() + "/step-66/rank-00000.safetensors").at("tensor/spike/seen").item(0), 2);
  EXPECT_THAT(train("--nodes 2 --max-steps 67", "--resume run").out, HasSubstr("the spike guard begins anew"));
}

TEST_F(Resume, NoticesOtherData) {
  ASSERT_EQ(train("--optimizer sgdm --batch 16 --max-steps 4").exit_code, 0);
  const std::string changed = "notice: changed since the run was saved: the training data; the run continues";
  const Outcome same = train("--max-steps 5", "--resume run");
  EXPECT_THAT(same.out, Not(HasSubstr(changed)));
  const fs::path labels = folder_ / "data/train-labels-idx1-ubyte";
  std::string bytes = read_file(labels);
  ASSERT_GT(bytes.size(), 8u);
  std::reverse(bytes.begin() + 8, bytes.end());
  write_file(labels, bytes);
  const Outcome other = train("--max-steps 6", "--resume run");
  ASSERT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.out, HasSubstr(changed));
}

TEST_F(Resume, KeepsTheNewestCheckpoints) {
  write_file(run_dir() / "checkpoints/step-1.partial/rank-00000.safetensors", "an interrupted save");
  write_file(run_dir() / "checkpoints/step-3/model.safetensors", "an interrupted removal");
  write_file(run_dir() / "checkpoints/notes", "of the user");
  const Outcome outcome = train("--optimizer adamw --max-steps 7 --checkpoint-every 2 --batch 16");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::vector<int64_t> steps;
  for (const auto& [step, folder] : checkpoints_in(checkpoints())) steps.push_back(step);
  EXPECT_EQ(steps, (std::vector<int64_t>{6, 7})) << "the last step is saved too";
  EXPECT_FALSE(fs::exists(run_dir() / "checkpoints/step-1.partial"));
  EXPECT_FALSE(fs::exists(run_dir() / "checkpoints/step-3"));
  EXPECT_TRUE(fs::exists(run_dir() / "checkpoints/notes"));
  EXPECT_THAT(outcome.out, HasSubstr("checkpoint of step 6 in run/checkpoints"));
  const Outcome longer = train("--max-steps 9", "--resume run");
  EXPECT_THAT(longer.out, HasSubstr("continues after step 7: run/checkpoints/step-7, loaded in "));
  ASSERT_EQ(longer.exit_code, 0) << longer.err;
  EXPECT_EQ(metrics().back()["step"], 9);
  const std::string not_complete = " has no manifest.json, so this checkpoint is not complete";
  EXPECT_THAT(longer.out, Not(HasSubstr(not_complete)));
  fs::remove(run_dir() / "checkpoints/step-9/manifest.json");
  const Outcome earlier = train("--max-steps 9", "--resume run");
  ASSERT_EQ(earlier.exit_code, 0) << earlier.err;
  EXPECT_THAT(earlier.out, HasSubstr("notice: run/checkpoints/step-9" + not_complete));
}

TEST_F(Resume, LeavesOtherFoldersAlone) {
  const std::vector<std::string> others{"step-backup/f", "step-1.old/f", "notes/f"};
  for (const std::string& other : others) write_file(fs::path(checkpoints()) / other, "precious");
  write_file(fs::path(checkpoints()) / "step-9/f", "of an interrupted checkpoint");
  ASSERT_EQ(train("--optimizer sgdm --max-steps 4 --checkpoint-every 1 --set checkpoint.keep=1").exit_code, 0);
  for (const std::string& other : others) EXPECT_TRUE(fs::exists(fs::path(checkpoints()) / other)) << other;
  EXPECT_FALSE(fs::exists(fs::path(checkpoints()) / "step-9"));
}

// Kills the process repeatedly, at different moments of a step, and starts it with the same command.
TEST_F(Resume, SurvivesBeingKilledAtAnyMoment) {
  const std::string flags =
      "--optimizer birder --nodes 2 --batch 16 --epochs 20 --max-steps 60 --set log_every=1 --checkpoint-every 1 "
      "--resume auto";
  ASSERT_EQ(train(flags).exit_code, 0);
  const auto whole = remains();
  fs::remove_all(run_dir());
  int kills = 0;
  for (int i = 0; i < 8; ++i) {
    environment_ = signal_after(5 * i, "KILL", 0.002 * i);
    const Outcome outcome = train(flags);
    EXPECT_TRUE(outcome.exit_code == 0 || outcome.exit_code == 137) << outcome.exit_code << ": " << outcome.err;
    kills += outcome.exit_code == 137;
  }
  environment_.clear();
  ASSERT_EQ(train(flags).exit_code, 0);
  EXPECT_GT(kills, 3);
  EXPECT_TRUE(remains() == whole) << kills << " kills";
}

// Before the first checkpoint --resume auto starts the run anew.
TEST_F(Resume, AutoStartsAnewWithoutACheckpoint) {
  const std::string flags = "--optimizer adamw --batch 16 --set log_every=1 --checkpoint-every 1000 --resume auto";
  ASSERT_EQ(train(flags).exit_code, 0);
  const auto whole = remains();
  const std::string metrics = read_file(run_dir() / "metrics.jsonl");
  fs::remove_all(run_dir() / "checkpoints");
  const Outcome outcome = train(flags);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(remains() == whole);
  EXPECT_THAT(outcome.out,
              HasSubstr("notice: the run starts at step 1, because it has no complete checkpoint; its earlier "
                        "metrics are now run/metrics.old.jsonl"));
  EXPECT_EQ(read_file(run_dir() / "metrics.old.jsonl"), metrics);
  fs::remove(run_dir() / "metrics.jsonl");
  const Outcome other = train("--optimizer adamw");
  EXPECT_NE(other.exit_code, 0);
  EXPECT_THAT(other.err, HasSubstr("run: has checkpoints of another run; choose another --run-dir"));
}

// If a checkpoint was saved at the end of an epoch, before the evaluation, the resumed run first evaluates.
TEST_F(Resume, EvaluatesAnEpochThatWasInterruptedBeforeItsEvaluation) {
  const auto whole = trained("--optimizer sgdm --nodes 2 --batch 16 --max-steps 20", 8);
  for (const int64_t step : {20, 8}) {
    for (const auto& [other, path] : checkpoints_in(checkpoints()))
      if (other > step) fs::remove_all(path);
    // The same checkpoint without its evaluation.
    const fs::path saved = run_dir() / ("checkpoints/step-" + std::to_string(step));
    json manifest = json::parse(read_file(saved / "manifest.json"));
    for (const char* rank : {"rank-00000.safetensors", "rank-00001.safetensors"}) {
      std::map<std::string, std::string> numbers;
      const auto tensors = load_safetensors((saved / rank).string(), &numbers);
      numbers.at("number/evaluated") = "0x0p+0";
      const std::string metrics = read_file(run_dir() / "metrics.jsonl");
      const size_t line = metrics.find("{\"step\": " + std::to_string(step) +
                                       ", \"epoch\": " + std::to_string((step - 1) / 8 + 1) + ", \"test_loss\"");
      ASSERT_NE(line, std::string::npos);
      if (std::string(rank) == "rank-00000.safetensors") numbers.at("number/metrics_bytes") = std::to_string(line);
      save_safetensors((saved / rank).string(), {tensors.begin(), tensors.end()}, numbers);
      const std::string bytes = read_file(saved / rank);
      manifest["files"][rank] = {{"bytes", bytes.size()}, {"xxh3_128", xxh3_128(bytes)}};
    }
    write_file(saved / "manifest.json", manifest.dump());
    const Outcome outcome = train("", "--resume run");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_TRUE(remains() == whole) << "from step " << step;
  }
}

// SIGTERM saves a checkpoint; 0/1 Adam first completes its local steps.
TEST_F(Resume, AnInterruptSavesACheckpoint) {
  for (const char* method : {"sgdm", "zero_one_adam --set optimizer.intervals=fixed --set optimizer.max_interval=4"}) {
    const std::string flags =
        std::string("--optimizer ") + method +
        " --nodes 2 --batch 4 --epochs 20 --max-steps 300 --set log_every=1 --checkpoint-every 1000";
    const auto whole = trained(flags, 1000);
    fs::remove_all(run_dir());
    environment_ = signal_after(20, "TERM");
    Outcome outcome = train(flags + " --set checkpoint.keep=100");
    environment_.clear();
    ASSERT_NE(outcome.exit_code, 0);
    EXPECT_THAT(outcome.err, HasSubstr("SIGTERM"));
    ASSERT_NE(newest_checkpoint(checkpoints()), "") << outcome.out;
    outcome = train("", "--resume run");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_TRUE(remains() == whole) << method;
  }
}

TEST_F(Resume, ARunGoesOnWithoutACheckpointThatCannotBeWritten) {
  write_file(run_dir() / "checkpoints", "a file in place of the folder");
  const Outcome outcome = train("--optimizer birder --nodes 2 --batch 16 --checkpoint-every 2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* step : {"2", "4"})
    EXPECT_THAT(outcome.out, HasSubstr(std::string("notice: no checkpoint of step ") + step +
                                       ": rank 0: run/checkpoints/step-" + step + ".partial: cannot be created"));
  EXPECT_TRUE(fs::exists(run_dir() / "weights.safetensors"));
}

// SIGUSR1 saves a checkpoint and the run continues, to the same result; also without --checkpoint-every.
TEST_F(Resume, ASignalRequestsACheckpoint) {
  for (const char* method :
       {"birder", "zero_one_adam --set optimizer.intervals=fixed --set optimizer.max_interval=4"}) {
    const std::string flags =
        std::string("--optimizer ") + method + " --nodes 2 --batch 4 --epochs 20 --max-steps 300 --set log_every=1";
    fs::remove_all(run_dir());
    ASSERT_EQ(train(flags).exit_code, 0);
    const auto whole = remains();
    fs::remove_all(run_dir());
    environment_ = signal_after(20, "USR1");
    Outcome outcome = train(flags);
    environment_.clear();
    EXPECT_TRUE(remains() == whole) << method;
    const auto saved = checkpoints_in(checkpoints());
    ASSERT_EQ(saved.size(), 2u) << outcome.out << outcome.err;
    EXPECT_GT(saved.begin()->first, 0);
    EXPECT_LT(saved.begin()->first, 300);
    fs::remove_all(saved.at(300));
    outcome = train("", "--resume run");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_TRUE(remains() == whole) << method;
  }
}

// An interrupt saves a checkpoint also without --checkpoint-every.
TEST_F(Resume, EveryInterruptedRunCanContinue) {
  const std::string flags = "--optimizer adamw --batch 1 --max-steps 200 --set log_every=1";
  ASSERT_EQ(train(flags).exit_code, 0);
  const auto whole = remains();
  fs::remove_all(run_dir());
  environment_ = signal_after(20, "INT");
  EXPECT_NE(train(flags).exit_code, 0);
  environment_.clear();
  const Outcome outcome = train("", "--resume run");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(remains() == whole);
}

TEST_F(Resume, TrainsLongerAfterTheEnd) {
  const std::string flags = "--optimizer birder --nodes 2 --batch 4 --max-steps 4";
  EXPECT_THAT(train(flags + " --check-replicas 1").out, HasSubstr("\nreplica checks: 5 passed;"));
  const Outcome outcome = train("", "--resume run --max-steps 6");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\nreplica checks: 7 passed;")) << "with the checks before the resume";
  EXPECT_THAT(outcome.out, HasSubstr("continues after step 4"));
  EXPECT_TRUE(checkpoints_in(checkpoints()).contains(6));
  const std::string summary = read_file(run_dir() / "summary.json");
  ASSERT_EQ(train("", "--resume run").exit_code, 0);
  EXPECT_EQ(read_file(run_dir() / "summary.json"), summary) << "a run without further steps keeps its summary";
  fs::remove_all(run_dir());
  ASSERT_EQ(train(flags + " --set checkpoint.at_end=false").exit_code, 0);
  EXPECT_FALSE(fs::exists(checkpoints()));
}

TEST_F(Resume, CheckpointsByTheClock) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = train(
      "--optimizer birder --nodes 2 --batch 4 --epochs 40 --max-steps 400 "
      "--checkpoint-every 0.0005min --set checkpoint.keep=1000");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto saved = checkpoints_in(checkpoints());
  EXPECT_GT(saved.size(), 2u);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LE(static_cast<double>(saved.size()), seconds / 0.03 + 1) << "0.0005 minutes are 0.03 s";
  EXPECT_TRUE(saved.contains(400)) << "one at the end";
  for (const char* bad : {"-1", "1.5", "min", "10hours", "1e99"}) {
    const Outcome refused = train(std::string("--optimizer birder --checkpoint-every ") + bad);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err,
                HasSubstr("--checkpoint-every expects a number of steps such as 200, or of minutes such as 10min; "
                          "got '" +
                          std::string(bad) + "'"));
  }
}

// The newest checkpoints and that of the best evaluation are kept.
TEST_F(Resume, KeepsTheBestCheckpoint) {
  for (const char* figure : {"test_loss", "test_top1"}) {
    fs::remove_all(run_dir());
    const std::string flags = std::string("--optimizer sgdm --lr 0.3 --nodes 2 --batch 16 --epochs 6 --max-steps 40 ") +
                              "--checkpoint-every 3 --set checkpoint.keep=1 --set checkpoint.best=" + figure;
    const Outcome outcome = train(flags);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    int64_t best = 0, last = 0;
    double value = 0;
    for (const json& line : metrics()) {
      last = line["step"];
      if (!line.contains(figure)) continue;
      const double here = line[figure];
      const bool low = std::string(figure) == "test_loss";
      if (best == 0 || (low ? here < value : here > value)) best = line["step"], value = here;
    }
    std::set<int64_t> kept;
    for (const auto& [step, folder] : checkpoints_in(checkpoints())) kept.insert(step);
    EXPECT_EQ(kept, (std::set<int64_t>{best, last})) << outcome.out;
    EXPECT_THAT(outcome.out, HasSubstr(std::string("; the best ") + figure + " so far"));
  }
  fs::remove_all(run_dir());
  expect_refused("--optimizer sgdm --set checkpoint.best=top9",
                 {"checkpoint.best: the evaluations have no figure 'top9'; use one of test_loss, test_top1, "
                  "test_top5\n"});
  expect_refused("--optimizer sgdm --set validation=5 --set checkpoint.best=top9",
                 {"use one of validation_loss, validation_top1, validation_top5"});
}

// Losses and accuracies cannot be compared.
TEST_F(Resume, AnotherBestFigureBeginsAnew) {
  const std::string flags = "--optimizer sgdm --lr 0.01 --batch 16 --set checkpoint.keep=1 ";
  ASSERT_EQ(train(flags + "--max-steps 16 --set checkpoint.best=test_loss").exit_code, 0);
  const std::string same = train("--max-steps 32", "--resume run").out;
  EXPECT_THAT(same, Not(HasSubstr("was 'test_loss'")));
  const Outcome outcome = train("--max-steps 48 --set checkpoint.best=test_top1", "--resume run");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("notice: checkpoint.best is 'test_top1' (was 'test_loss'), so the best checkpoint of the "
                        "saved run, of step "));
  EXPECT_THAT(outcome.out, HasSubstr("checkpoint of step 48 in run/checkpoints: "));
  EXPECT_THAT(outcome.out, HasSubstr("; the best test_top1 so far"));
}

// The checkpoint of a new best evaluation, after step 64, cannot be written, so the previous best one stays.
TEST_F(Resume, KeepsTheBestCheckpointThatIsComplete) {
  environment_ = faulty_system("FAULTY_FULL=4.partial/ 1000 1000000");
  const Outcome outcome = train(
      "--optimizer sgdm --lr 0.01 --batch 8 --max-steps 74 --checkpoint-every 35 --set checkpoint.keep=1 "
      "--set checkpoint.best=test_loss");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::map<int64_t, double> losses;
  for (const json& line : metrics())
    if (line.contains("test_loss")) losses[line["step"]] = line["test_loss"];
  ASSERT_EQ(losses.size(), 3u);
  ASSERT_LT(losses.at(64), losses.at(32));
  EXPECT_THAT(outcome.out, HasSubstr("notice: no checkpoint of step 64: "));
  std::set<int64_t> kept;
  for (const auto& [step, folder] : checkpoints_in(checkpoints())) kept.insert(step);
  EXPECT_EQ(kept, (std::set<int64_t>{32, 70})) << outcome.out;
  std::map<std::string, std::string> numbers;
  load_safetensors(checkpoints() + "/step-70/rank-00000.safetensors", &numbers);
  EXPECT_EQ(std::stod(numbers.at("number/best_step")), 32) << "a hexadecimal number";
}

// A run that drops state of its checkpoint reports this.
TEST_F(Resume, ReportsUnusedState) {
  trained("--optimizer sgdm --batch 16 --max-steps 4 --set ema.decay=0.9", 2);
  EXPECT_TRUE(fs::exists(run_dir() / "ema.safetensors"));
  const Outcome outcome = continued_from(2, "--set ema.decay=0");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("notice: the checkpoint has state that this run does not use: ema, extra/ema\n"));
  EXPECT_FALSE(fs::exists(run_dir() / "ema.safetensors")) << "averages of the saved run";
  trained("--optimizer sgdm --batch 16 --max-steps 4 --set ema.decay=0.9", 2);
  fs::remove_all(checkpoints());
  ASSERT_EQ(train("--optimizer sgdm --batch 16 --max-steps 4 --resume auto").exit_code, 0);
  EXPECT_FALSE(fs::exists(run_dir() / "ema.safetensors")) << "averages of a run that starts anew";
}

// 4 nodes, then 8, then 2: every step has the same number of samples, and the state is redistributed.
TEST_F(Resume, WithAnotherNumberOfWorkers) {
  for (const char* method : {"birder", "adamw --exchange loco --set exchange.sharding=zero2", "one_bit_adam"}) {
    fs::remove_all(run_dir());
    Outcome outcome = train(std::string("--optimizer ") + method +
                            " --nodes 4 --batch 4 --max-steps 12 --set log_every=1 --checkpoint-every 4 "
                            "--set checkpoint.keep=100 --set ema.decay=0.9");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const auto steps = [&] {
      std::vector<int64_t> all;
      for (const json& line : metrics())
        if (line.contains("lr")) all.push_back(line["step"]);
      return all;
    };
    const std::vector<int64_t> whole = steps();
    int64_t step = 4;
    for (const auto& [nodes, remark] :
         {std::pair{8, "8 workers instead of 4: batch 2 and accumulation 1 keep 16 samples per step"},
          std::pair{2, "2 workers instead of 8: batch 2 and accumulation 4 keep 16 samples per step"}}) {
      outcome = continued_from(step, "--nodes " + std::to_string(nodes) + " --max-steps " + std::to_string(step + 4));
      ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
      EXPECT_THAT(outcome.out, HasSubstr(remark));
      EXPECT_THAT(outcome.out, HasSubstr("notice: the checkpoint was saved by " + std::to_string(nodes == 8 ? 4 : 8) +
                                         " × 1 workers, this run has " + std::to_string(nodes) + " × 1"));
      step += 4;
    }
    EXPECT_EQ(steps(), whole) << "no line is missing or repeated";
  }
}

// As tools/supervise does after the loss of hosts: each start has the command of the first one, with fewer nodes.
TEST_F(Resume, RestartsAgainWithFewerWorkers) {
  const auto start = [&](int nodes, int steps) {
    const std::string flags = " --optimizer birder --batch 4 --set log_every=1 --run-dir run --resume auto";
    const Outcome outcome = train("--nodes " + std::to_string(nodes) + " --max-steps " + std::to_string(steps) + flags);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  start(4, 2);
  EXPECT_THAT(start(2, 4), HasSubstr("2 workers instead of 4: batch 4 and accumulation 2 keep 16 samples"));
  EXPECT_THAT(start(2, 6), HasSubstr("2 workers: batch 4 and accumulation 2 keep 16 samples per step"));
  start(4, 8);
  EXPECT_EQ(metrics().size(), 12u) << "8 steps, and an evaluation at the end of each run";
}

TEST_F(Resume, ContinuesWithoutTheEarlierMetrics) {
  const std::string flags = "--optimizer adamw --batch 16 --set log_every=1 --set checkpoint.keep=9 --max-steps ";
  ASSERT_EQ(train(flags + "4").exit_code, 0);
  const std::string all = read_file(run_dir() / "metrics.jsonl");
  const auto resumed = [&](const std::string& steps, const std::string& notice) {
    const Outcome outcome = train("--max-steps " + steps, "--resume run");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr(notice));
  };
  write_file(run_dir() / "metrics.jsonl", "{}\n");
  resumed("6", "it is now run/metrics.old.jsonl, and a new file begins after step 4");
  EXPECT_EQ(read_file(run_dir() / "metrics.old.jsonl"), "{}\n");
  EXPECT_EQ(metrics().front()["step"], 5);
  resumed("8", "continues after step 6");
  EXPECT_EQ(metrics().front()["step"], 5) << "the new file continues";
  fs::remove(run_dir() / "metrics.jsonl");
  resumed("9", "metrics.jsonl is missing or empty");
  EXPECT_EQ(metrics().front()["step"], 9);
  // A file that is long enough, but has lines of later steps.
  for (const int step : {6, 8, 9}) fs::remove_all(run_dir() / ("checkpoints/step-" + std::to_string(step)));
  std::string later;
  while (later.size() < all.size() + 100) later += "{\"step\": 5}\n";
  write_file(run_dir() / "metrics.jsonl", later);
  resumed("5", "it is now run/metrics.old-2.jsonl");
  EXPECT_EQ(read_file(run_dir() / "metrics.old.jsonl"), "{}\n");
  EXPECT_EQ(read_file(run_dir() / "metrics.old-2.jsonl"), later);
  fs::remove(run_dir() / "metrics.jsonl");
  fs::rename(run_dir() / "checkpoints", folder_ / "checkpoints");
  EXPECT_NE(train("--max-steps 4").err.find("the run would replace config.json"), std::string::npos);
  fs::rename(folder_ / "checkpoints", run_dir() / "checkpoints");
  ASSERT_EQ(::mkfifo((run_dir() / "metrics.jsonl").c_str(), 0600), 0);
  EXPECT_NE(train("--max-steps 7", "--resume run").err.find("metrics.jsonl: is not a regular file"), std::string::npos);
}

}  // namespace resume_test
}  // namespace godwit
