// train_resnet, run from the command line: its output files, reproducibility, and rejection of invalid input.
#include <cmath>
#include <filesystem>
#include <regex>

#include "engine/safetensors.h"
#include "tests/apps/small_data.h"
#include "tests/apps/programs/train_resnet.h"

namespace godwit {
namespace train_resnet_test {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

TEST_F(TrainResnet, WritesARunDirectoryAndIsReproducible) {
  const std::string flags =
      "--optimizer birder --nodes 2 --workers-per-node 2 --batch 8 --set log_every=1 --check-replicas 1";
  Outcome outcome = train(flags);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("replica checks: 5 passed")) << "four steps and the end";
  const std::vector<json> first = metrics();
  ASSERT_EQ(first.size(), 5u) << "four steps and an evaluation";
  for (const char* key : {"step", "epoch", "loss", "lr", "samples_per_s", "step_s", "bytes_intra", "bytes_inter"})
    EXPECT_TRUE(first[0].contains(key)) << key;
  for (const char* key : {"test_loss", "test_top1", "test_top5"}) EXPECT_TRUE(first[4].contains(key)) << key;
  const std::string weights = read_file(run_dir() / "weights.safetensors");
  EXPECT_GT(weights.size(), 1'000'000u);

  fs::rename(run_dir(), folder_ / "first");
  outcome = train("--config first/config.json", "--run-dir run");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(losses(metrics()), losses(first)) << "config.json must repeat the run bit for bit";
  EXPECT_EQ(read_file(run_dir() / "weights.safetensors"), weights);
}

TEST_F(TrainResnet, WorkersAreComparedByDefault) {
  EXPECT_NE(done("--nodes 2 --batch 8")
                .out.find("replica checks: 1 passed; parameters and shared optimizer state of 2 "
                          "workers were bit-identical\n"),
            std::string::npos);
  EXPECT_EQ(done("--nodes 2 --batch 8 --check-replicas 0").out.find("replica checks"), std::string::npos);
  EXPECT_EQ(done("--batch 8").out.find("replica checks"), std::string::npos) << "one worker";
}

// Evaluations, averages of weights, replica checks and files are the same as without sharded parameters.
TEST_F(TrainResnet, ShardedParametersGiveTheSameFiles) {
  const auto files = [&](const std::string& sharding) {
    const Outcome outcome = train(
        "--optimizer adamw --workers-per-node 2 --batch 8 --set log_every=1 --check-replicas 1 "
        "--set ema.decay=0.9 --accumulation 2 --set bucket.mib=0.2 --set exchange.sharding=" +
        sharding);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::string all =
        losses(metrics()) + read_file(run_dir() / "weights.safetensors") + read_file(run_dir() / "ema.safetensors");
    fs::remove_all(run_dir());
    return all;
  };
  const std::string none = files("none");
  EXPECT_TRUE(files("zero3") == none);
  EXPECT_TRUE(files("hybrid") == none) << "with one node, hybrid is zero3";
}

// Lines of metrics.jsonl also count the steps between the previous line and the end of an epoch.
TEST_F(TrainResnet, TrainingLinesCountAllSteps) {
  const Outcome outcome = train(
      "--optimizer one_bit_adam --set optimizer.warmup=fixed --set optimizer.warmup_steps=4 --nodes 2 --batch 32 "
      "--set optimizer.refresh_variance=false --set log_every=3 --epochs 3 --max-steps 9");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  double sent = 0, logged = 0;
  const json accounts = json::parse(read_file(run_dir() / "summary.json"));
  for (const json& phase : accounts["phases"])
    if (phase["phase"].get<std::string>().starts_with("one_bit_adam/")) sent += phase["bytes_inter"].get<double>();
  int64_t before = 0, epochs = 0;
  for (const json& line : metrics()) {
    epochs += line.contains("test_loss");
    if (!line.contains("step_s")) continue;
    const int64_t step = line["step"];
    logged += line["bytes_inter"].get<double>() * static_cast<double>(step - before);
    before = step;
  }
  EXPECT_EQ(epochs, 3) << "step 4, the last dense one, is the last of an epoch and has no line";
  EXPECT_NEAR(logged, sent, 1e-6 * sent);
}

// oneDNN waits for all threads of a region, so OpenMP must start the requested number.
TEST_F(TrainResnet, SettingsOfOpenMpDoNotHangARun) {
  for (const char* setting : {"OMP_DYNAMIC=true", "OMP_MAX_ACTIVE_LEVELS=0", "OMP_THREAD_LIMIT=1"}) {
    environment_ = setting;
    done("--threads 2 --max-steps 1");
  }
}

#ifdef _OPENMP
// OpenMP binds the first thread of the process, and all workers inherit its core.
TEST_F(TrainResnet, PrintsThatOpenMpBindsThreads) {
  const char* text = "notice: OpenMP binds threads to cores";
  EXPECT_THAT(done("--max-steps 1").out, testing::Not(HasSubstr(text)));
  environment_ = "OMP_PROC_BIND=true";
  EXPECT_THAT(done("--max-steps 1").out, HasSubstr(text));
}
#endif

TEST_F(TrainResnet, SummaryContainsStateBytesAndTime) {
  const Outcome outcome = train(
      "--optimizer birder --nodes 2 --workers-per-node 2 --batch 4 --set log_every=1 --set optimizer.moments=bf16 "
      "--set optimizer.errors=int8 --set optimizer.mask=automatic");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json accounts = json::parse(read_file(run_dir() / "summary.json"));
  EXPECT_EQ(accounts["steps"], 4);
  EXPECT_EQ(accounts["skipped"], 0);
  double state = 0;  // half of m and b (2 bytes each) and e (1 byte), a quarter of ē (1 byte), and the mask (1 bit)
  for (const json& part : accounts["state"]) {
    ASSERT_EQ(part["bytes_of_ranks"].size(), 4u);
    state += part["bytes_per_parameter"].get<double>();
  }
  EXPECT_NEAR(state, 5 / 2.0 + 1 / 4.0 + 1 / 8.0, 1e-3);
  double intra = 0, inter = 0, logged_intra = 0, logged_inter = 0;
  for (const json& phase : accounts["phases"])
    if (phase["phase"].get<std::string>().starts_with("h1ar/")) {
      intra += phase["bytes_intra"].get<double>(), inter += phase["bytes_inter"].get<double>();
      EXPECT_EQ(phase["calls"].get<int>() % 4, 0);
      EXPECT_GT(phase["seconds"], 0);
      EXPECT_THAT(outcome.out, HasSubstr(phase["phase"].get<std::string>()));
    }
  for (const json& line : metrics()) {
    if (!line.contains("step_s")) continue;
    logged_intra += line["bytes_intra"].get<double>(), logged_inter += line["bytes_inter"].get<double>();
    for (const char* time : {"forward_s", "backward_s", "waiting_s", "compression_s", "communication_s", "update_s"})
      EXPECT_GT(line[time], 0) << time;
    double parts = 0;
    for (const char* part : {"forward_s", "backward_s", "data_wait_s", "exposed_compression_s",
                             "exposed_communication_s", "exposed_update_s", "idle_s", "other_s"})
      parts += line[part].get<double>();
    EXPECT_NEAR(parts, line["step_s"], 1e-6);
    EXPECT_LE(line["exposed_communication_s"], line["communication_s"]);
    EXPECT_LE(line["idle_s"], line["waiting_s"]);
    EXPECT_GT(line["accuracy"], -1e-9);
  }
  EXPECT_EQ(intra, logged_intra);
  EXPECT_EQ(inter, logged_inter);
  const json& means = accounts["step_s"];
  EXPECT_GT(means["computation"], 0);
  double parts = 0;
  for (const char* part : {"forward", "backward", "data_wait", "exposed_compression", "exposed_communication",
                           "exposed_update", "idle", "other"})
    parts += means[part].get<double>();
  EXPECT_NEAR(parts, means["total"], 1e-6);

  // The times in the closing lines must add up, except for rounding to 0.1 ms.
  std::smatch part;
  const auto times = [&](const char* format) {
    EXPECT_TRUE(std::regex_search(outcome.out, part, std::regex(format))) << outcome.out;
    std::vector<double> values;
    for (size_t i = 1; i < part.size(); ++i) values.push_back(std::stod(part[i]));
    return values;
  };
  const std::vector<double> step = times(
      R"(per step: ([\d.]+) ms = ([\d.]+) forward \+ ([\d.]+) backward \+ ([\d.]+) data \+ ([\d.]+) exchange \+ ([\d.]+) idle \+ ([\d.]+) other)");
  const std::vector<double> exchange = times(
      R"(exchange per step: ([\d.]+) ms \(compression ([\d.]+), communication ([\d.]+), update ([\d.]+)\), exposed: ([\d.]+) ms \(([\d.]+), ([\d.]+), ([\d.]+)\))");
  ASSERT_TRUE(step.size() == 7 && exchange.size() == 8);
  EXPECT_NEAR(step[0], step[1] + step[2] + step[3] + step[4] + step[5] + step[6], 0.4);
  EXPECT_NEAR(exchange[0], exchange[1] + exchange[2] + exchange[3], 0.25);
  EXPECT_NEAR(exchange[4], exchange[5] + exchange[6] + exchange[7], 0.25);
  EXPECT_NEAR(exchange[4], step[4], 0.06);
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex(R"(  forward \d+%, backward \d+%, exposed communication )")))
      << "the progress line: " << outcome.out;
}

// With this learning rate the first step makes the parameters huge. All later gradients are non-finite, and all later
// steps are skipped.
TEST_F(TrainResnet, SkipsNonFiniteSteps) {
  const std::string flags = "--optimizer sgd --lr 1e30 --nodes 2 --batch 8 --set log_every=1";
  const Outcome failed = train(flags);
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.err, HasSubstr("step 2: the loss is"));
  fs::remove_all(run_dir());
  const Outcome outcome = train(flags + " --set non_finite=skip");
  EXPECT_THAT(outcome.out, HasSubstr("step 2 skipped: the gradient of '"));
  const std::vector<json> lines = metrics();
  ASSERT_EQ(lines.size(), 4u);
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(lines[static_cast<size_t>(i)]["skipped"], i);
  EXPECT_THAT(outcome.err, HasSubstr("test_loss is")) << "the evaluation of the model";
}

// The classes differ in the position of the bright quadrant, so augmentation is off.
TEST_F(TrainResnet, LearnsWithEveryOptimizer) {
  for (const auto& [optimizer, lr] : {std::pair{"sgd", "0.1"},
                                      {"sgdm", "0.05"},
                                      {"adam", "0.003"},
                                      {"adamw", "0.003"},
                                      {"softsignsgd", "0.003"},
                                      {"birder", "0.003"},
                                      {"binsgdm", "0.003"}}) {
    const Outcome outcome = train(std::string("--optimizer ") + optimizer + " --lr " + lr +
                                  " --nodes 2 --batch 16 --epochs 8 --max-steps 0 --check-replicas 10"
                                  " --set data.flip=false --set data.pad=0");
    ASSERT_EQ(outcome.exit_code, 0) << optimizer << ": " << outcome.err;
    EXPECT_GT(metrics().back()["test_top1"].get<double>(), 0.9) << optimizer << ": chance is 0.25";
    fs::remove_all(run_dir());
  }
}

// Bytes per step over all workers, for n = 2 nodes of m = 2 workers and one bucket of P bytes.
TEST_F(TrainResnet, ReportsTheBytesOfTheFormulas) {
  constexpr int64_t kParameters = 269'434 - 6 * 65;  // resnet20 with one input channel and four classes instead of ten
  constexpr double P = 4 * ((kParameters + 127) / 128 * 128);
  struct Case {
    const char* flags;
    double intra, inter;
  };
  for (const auto& [flags, intra, inter] :
       {Case{"--optimizer sgdm --exchange dense", 2 * P, 4 * P},
        Case{"--optimizer sgdm --exchange hierarchical", 4 * P, 2 * P},
        Case{"--optimizer birder", 2 * (P + P / 32), 2 * P / 32},
        Case{"--optimizer birder --set optimizer.collective=all_gather", 4 * P / 32, 8 * P / 32}}) {
    const Outcome outcome = train(
        std::string(flags) + " --nodes 2 --workers-per-node 2 --batch 4 --set log_every=4 --set bucket.first_mib=8");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(metrics().front()["bytes_intra"].get<double>(), intra) << flags;
    EXPECT_EQ(metrics().front()["bytes_inter"].get<double>(), inter) << flags;
    fs::remove_all(run_dir());
  }
}

// Four micro-batches per step: a quarter of the steps, the bytes of one exchange per step, and rates and losses over
// all images.
TEST_F(TrainResnet, AccumulationExchangesOncePerStep) {
  for (const std::string optimizer : {"birder", "sgdm"}) {
    std::vector<std::vector<json>> runs;
    for (const std::string k : {"1", "4"}) {
      const Outcome outcome = train("--optimizer " + optimizer + " --nodes 2 --batch 8 --accumulation " + k +
                                        " --set log_every=1 --epochs 1 --check-replicas 1 --threads 2",
                                    "--data data --run-dir run");
      ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
#ifdef _OPENMP
      EXPECT_THAT(outcome.out, HasSubstr("threads per worker: 2"));
#endif
      if (k == "4") {
        EXPECT_THAT(outcome.out, HasSubstr("4 of 64 images, 4 per epoch"));
      }
      runs.push_back(metrics());
      fs::remove_all(run_dir());
    }
    ASSERT_EQ(runs[0].size(), 17u) << "sixteen steps and an evaluation";
    ASSERT_EQ(runs[1].size(), 5u) << "four steps and an evaluation";
    EXPECT_GT(runs[1][0]["bytes_inter"].get<double>(), 0);
    for (size_t step = 0; step < 4; ++step)
      EXPECT_EQ(runs[1][step]["bytes_inter"], runs[0][step]["bytes_inter"]) << optimizer;
    EXPECT_NEAR(runs[1][0]["samples_per_s"].get<double>() * runs[1][0]["step_s"].get<double>(), 64, 1e-3);
  }
}

TEST_F(TrainResnet, ClipsByTheNormOfAllGradients) {
  for (const std::string optimizer : {"sgd", "birder"}) {
    std::vector<std::string> runs;
    for (const std::string norm : {"0", "0.001", "1e9"}) {
      const Outcome outcome = train("--optimizer " + optimizer + " --nodes 2 --batch 8 --set log_every=1 " +
                                    "--check-replicas 1 --set clip.norm=" + norm);
      ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
      ASSERT_EQ(metrics().front().contains("grad_norm"), norm != "0");
      EXPECT_GT(metrics().front().value("grad_norm", 1.0), 0.001);
      runs.push_back(losses(metrics()));
      fs::remove_all(run_dir());
    }
    EXPECT_EQ(runs[2], runs[0]) << optimizer << ": an unreached limit must not change a bit";
    EXPECT_NE(runs[1], runs[0]) << optimizer;
  }
}

// After one step the average is 2/11 of the initial and 9/11 of the trained weights; running statistics are averaged
// too.
TEST_F(TrainResnet, SavesAveragedWeightsToo) {
  const std::string flags = "--optimizer sgd --nodes 2 --batch 8 --max-steps 1 --check-replicas 1 --lr ";
  ASSERT_EQ(train(flags + "0 --set optimizer.weight_decay=0").exit_code, 0);
  const auto start = load_safetensors(run_dir() / "weights.safetensors");
  EXPECT_FALSE(fs::exists(run_dir() / "ema.safetensors"));
  fs::remove_all(run_dir());
  const Outcome outcome = train(flags + "0.5 --set ema.decay=0.9");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("averaged weights"));
  const auto trained = load_safetensors(run_dir() / "weights.safetensors");
  const auto averaged = load_safetensors(run_dir() / "ema.safetensors");
  ASSERT_EQ(averaged.size(), trained.size());
  double moved = 0;
  for (const auto& [name, x] : trained)
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double first = name.ends_with("running_mean")  ? 0
                           : name.ends_with("running_var") ? 1
                                                           : start.at(name).item(i);
      // Three roundings of values of at most a few units.
      ASSERT_NEAR(averaged.at(name).item(i), first + 9.0 / 11 * (x.item(i) - first), 1e-6) << name;
      moved = std::max(moved, std::abs(x.item(i) - first));
    }
  EXPECT_GT(moved, 0.01);
}

// The images of the four workers are those of the single worker. With shared statistics the results are equal up to
// float32 rounding.
TEST_F(TrainResnet, SynchronizedBatchNormMatchesASingleWorker) {
  const std::string flags =
      "--optimizer sgdm --lr 0.01 --set model.zero_init_residual=false --set log_every=1 --check-replicas 1 ";
  const auto losses_of = [&](const std::string& more) {
    const Outcome outcome = train(flags + more);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::vector<double> losses;
    for (const json& line : metrics()) losses.push_back(line.contains("loss") ? line["loss"] : line["test_loss"]);
    fs::remove_all(run_dir());
    return losses;
  };
  const std::vector<double> one = losses_of("--batch 16");
  const std::vector<double> four = losses_of("--nodes 2 --workers-per-node 2 --batch 4 --set model.sync_bn=true");
  const std::vector<double> apart = losses_of("--nodes 2 --workers-per-node 2 --batch 4");
  ASSERT_EQ(one.size(), 5u) << "four steps and an evaluation";
  ASSERT_EQ(four.size(), 5u);
  EXPECT_NEAR(four[0], one[0], 1e-5 * one[0]);
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(four[i], one[i], 1e-2 * one[i]) << "line " << i;
  EXPECT_GT(std::abs(apart[0] - one[0]), 1e-4 * one[0]) << "batches of four differ in statistics";
}

TEST_F(TrainResnet, BucketSizesDoNotChangeABit) {
  std::string first;
  for (const std::string mib : {"8", "0.1", "0.001"}) {
    const Outcome outcome = train(
        "--optimizer birder --nodes 3 --workers-per-node 2 --batch 4 --set log_every=1 "
        "--check-replicas 1 --set bucket.first_mib=" +
        mib + " --set bucket.mib=" + mib);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    if (first.empty()) first = losses(metrics());
    EXPECT_EQ(losses(metrics()), first) << mib << " MiB";
    fs::remove_all(run_dir());
  }
}

// The images are 8×8: one patch.
TEST_F(TrainResnet, TrainsAViT) {
  const std::string flags =
      "--model vit_tiny --set model.layers=2 --set model.patch_size=8 --set data.flip=false --optimizer adamw "
      "--lr 0.0005 --nodes 2 --batch 8 --set log_every=1 ";
  const Outcome outcome = train(flags + "--max-steps 60 --epochs 4 --set model.dropout=0.1 --check-replicas 10");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<json> lines = metrics();
  ASSERT_GT(lines.size(), 60u);
  EXPECT_NEAR(lines.front()["loss"].get<double>(), std::log(4), 1e-5) << "the initial head is 0";
  EXPECT_LT(lines.back()["test_loss"].get<double>(), 0.7 * std::log(4));
  fs::rename(run_dir(), folder_ / "first");
  ASSERT_EQ(train("--config first/config.json", "--run-dir run").exit_code, 0);
  EXPECT_EQ(losses(metrics()), losses(lines)) << "dropout must be reproducible";
  fs::remove_all(run_dir());
  EXPECT_EQ(train(flags + "--init-weights first/weights.safetensors --max-steps 1").exit_code, 0);
  fs::remove_all(run_dir());
  expect_refused(flags + "--set model.patch_size=4 --init-weights first/weights.safetensors",
                 {"first/weights.safetensors: encoder.pos_embedding has 2 positions (patches of 8×8 pixels and the "
                  "class token), but images of 8×8 with patches of 4×4 have 5; use --set model.patch_size=8 and images "
                  "of the size"});
  auto larger = load_safetensors(folder_ / "first/weights.safetensors");
  larger.at("encoder.pos_embedding") = Tensor::zeros({1, 10, 192});
  save_safetensors(folder_ / "larger.safetensors", {larger.begin(), larger.end()});
  expect_refused(flags + "--init-weights larger.safetensors",
                 {"has 10 positions", "images of 8×8 with patches of 8×8 have 2; use images of the size for which the "
                  "weights were trained, probably 24×24 (folders of JPEGs: --set data.crop=24)\n"});
  expect_refused(flags + "--set model.patch_size=3", {"patches of 3×3"});
  expect_refused("--model vgg16_cifar", {"at least 32×32", "8×8"});
}

TEST_F(TrainResnet, StartsFromSavedWeights) {
  ASSERT_EQ(train("--optimizer sgdm --batch 8 --set log_every=1").exit_code, 0);
  const std::string weights = read_file(run_dir() / "weights.safetensors");
  const json first = metrics().front();
  fs::rename(run_dir(), folder_ / "first");
  // With a learning rate of zero the parameters stay, so the file can differ only in the running statistics.
  const std::string again =
      "--optimizer sgd --lr 0 --set optimizer.weight_decay=0 --batch 8 --max-steps 1 "
      "--set log_every=1 --init-weights ";
  ASSERT_EQ(train(again + "first/weights.safetensors").exit_code, 0);
  EXPECT_NE(metrics().front()["loss"], first["loss"]) << "the saved weights were not used";
  const std::string loss = metrics().front()["loss"].dump();
  fs::rename(run_dir(), folder_ / "second");
  ASSERT_EQ(train(again + "second/weights.safetensors").exit_code, 0);
  EXPECT_EQ(metrics().front()["loss"].dump(), loss);
  EXPECT_EQ(read_file(run_dir() / "weights.safetensors").size(), weights.size());
  // A checkpoint has the same parameters and running statistics.
  fs::rename(run_dir(), folder_ / "third");
  const std::string saved = folder_ / "second/checkpoints/step-1/model.safetensors";
  ASSERT_EQ(train(again + saved).exit_code, 0);
  EXPECT_EQ(metrics().front()["loss"].dump(), loss);
  const auto trained = load_safetensors(folder_ / "second/weights.safetensors");
  for (const auto& [name, values] : load_safetensors(saved))
    EXPECT_EQ(trained.at(name).to_vector<float>(), values.to_vector<float>()) << name;
  EXPECT_EQ(load_safetensors(saved).size(), trained.size());
  fs::remove_all(folder_ / "second");
  const Outcome resumed = train("--max-steps 2", "--resume run");
  EXPECT_EQ(resumed.exit_code, 0) << "a resumed run does not read the initial weights: " << resumed.err;

  write_file(folder_ / "half.safetensors", weights.substr(0, weights.size() / 2));
  fs::remove_all(run_dir());
  expect_refused(again + "half.safetensors", {"half.safetensors"});
}

// Weights of four classes, fine-tuned to three.
TEST_F(TrainResnet, OtherClassesGetANewLastLayer) {
  ASSERT_EQ(train("--optimizer sgdm --batch 8 --max-steps 1").exit_code, 0);
  fs::rename(run_dir(), folder_ / "first");
  for (const char* name : {"data/train-labels-idx1-ubyte", "data/t10k-labels-idx1-ubyte"}) {
    std::string bytes = read_file(folder_ / name);
    for (size_t i = 8; i < bytes.size(); ++i) bytes[i] = static_cast<char>(bytes[i] % 3);
    write_file(folder_ / name, bytes);
  }
  const Outcome outcome = train("--optimizer sgdm --max-steps 1 --init-weights first/weights.safetensors");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("first/weights.safetensors, without fc.weight and fc.bias: the last layer is new"));
  EXPECT_EQ(load_safetensors(run_dir() / "weights.safetensors").at("fc.bias").numel(), 3);
}

// The test data is not read.
TEST_F(TrainResnet, ValidatesOnHeldOutTrainingImages) {
  const std::vector<json> with_test = [&] {
    EXPECT_EQ(train("--max-steps 2").exit_code, 0);
    return metrics();
  }();
  fs::remove_all(run_dir());
  for (const char* file : {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"})
    ASSERT_TRUE(fs::remove(folder_ / "data" / file));
  const Outcome outcome = train("--max-steps 2 --set validation=4");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("validation loss"));
  const json last = metrics().back();
  for (const char* key : {"validation_loss", "validation_top1", "validation_top5"})
    EXPECT_TRUE(last.contains(key)) << key;
  EXPECT_EQ(last.size(), with_test.back().size());
  fs::remove_all(run_dir());
  expect_refused("--set validation=1000", {"validation is 1000", "training samples"});
}

TEST_F(TrainResnet, RefusesInvalidInput) {
  expect_refused("--optimizr birder", {"--optimizr", "--optimizer"});
  expect_refused("--optimizer brider", {"brider", "birder"});
  expect_refused("--model resnet21", {"resnet21", "resnet20"});
  expect_refused("--set optimizer.betta=0.9", {"optimizer.betta", "beta"});
  expect_refused("--set optimizer.lr=fast", {"optimizer.lr", "fast"});
  EXPECT_EQ(train("--set data.crop=32 --set data.resize=31").exit_code, 2);
  expect_refused("--lr nan", {"lr", "nan"});
  expect_refused("--lr=-1", {"lr", "-1"});
  expect_refused("--set ema.decay=1", {"ema.decay", "1"});
  expect_refused("--nodes 0", {"nodes", "0"});
  expect_refused("--nodes -3", {"nodes", "-3"});
  expect_refused("--batch 1000", {"1000", "256"});
  expect_refused("--batch 64 --accumulation 5", {"accumulation", "5", "4 batches"});
  expect_refused("--accumulation 0", {"accumulation", "0"});
  expect_refused("--data nowhere", {"nowhere"});
  expect_refused("--init-weights nowhere.safetensors", {"nowhere.safetensors"});
  expect_refused("--config nowhere.json", {"nowhere.json"});
  write_file(folder_ / "bad.json", "{\"optimizer\": {\"name\": \"birder\", \"lr\": }}");
  expect_refused("--config bad.json", {"bad.json"});
  write_file(folder_ / "bad.safetensors", std::string(100, 'x'));
  expect_refused("--init-weights bad.safetensors --nodes 3", {"bad.safetensors"});
}

// Methods that cannot be combined with the model, the topology, the run or each other.
TEST_F(TrainResnet, RefusesInvalidCombinations) {
  expect_refused("--model vit_tiny --set model.sync_bn=true",
                 {"model.sync_bn: vit_tiny has no batch norm; leave it out"});
  expect_refused("--model vgg16 --set model.sync_bn=true", {"model.sync_bn: vgg16 has no batch norm; leave it out"});
  for (const char* flags : {"--strict", "--set data.max_pixels=9", "--set data.decode_mib=9"})
    expect_refused(flags,
                   {"data folder data: data.max_pixels, data.decode_mib and --strict apply to folders of JPEGs"});
  expect_refused("--optimizer birder --set exchange.sharding=zero1", {"keeps state of all parameters", "adamw"});
  expect_refused("--exchange topk --set exchange.sharding=zero2", {"sharding zero2", "use sharding zero1"});
  expect_refused("--exchange topk --set exchange.sharding=zero3", {"sharding zero3", "use sharding zero1"});
  expect_refused("--optimizer birder --workers-per-node 2 --set exchange.sharding=hybrid --set optimizer.frozen=fc",
                 {"frozen names parameters", "leave optimizer.frozen or exchange.sharding out"});
  expect_refused("--exchange qsgd --set exchange.error_feedback=worker", {"7 levels", "lower exchange.block_size"});
  expect_refused("--exchange ef_signsgd --set exchange.block_size=-1 --set bucket.first_mib=0.1",
                 {"needs the model in one bucket", "set bucket.first_mib to"});
  expect_refused("--optimizer one_bit_adam --set optimizer.warmup_steps=4",
                 {"a warm-up of 4 steps leaves nothing to compress of a run of 4", "lower optimizer.warmup_steps"});
  expect_refused("--set schedule.warmup_steps=9",
                 {"a warm-up of 9 steps is longer than the run of 4 steps; lower schedule.warmup_steps"});
  expect_refused(
      "--optimizer zero_one_adam --max-steps 10 --set optimizer.warmup_steps=1 --set optimizer.freeze_step=4"
      " --set optimizer.intervals=doubling --set optimizer.doubling_steps=1 --set optimizer.variance_interval=1",
      {"T_u and T_v contradict each other", "at step 4", "lower freeze_step (4) to 3"});
  const Outcome saturated = train("--exchange loco --set exchange.scale=2^40 --nodes 2");
  EXPECT_EQ(saturated.exit_code, 1);
  EXPECT_THAT(saturated.err, HasSubstr("loco: after step 1, "));
  EXPECT_THAT(saturated.err, HasSubstr("; lower exchange.scale, set it to auto"));
  fs::remove_all(run_dir());
  const Outcome kept = train("--exchange topk --set exchange.sharding=zero1 --nodes 2 --max-steps 1");
  EXPECT_THAT(kept.out,
              HasSubstr("notice: sharding zero1 does not divide the state of topk: every worker keeps 1.08 MB"));
}

TEST_F(TrainResnet, PrintsNoticesAboutUnexpectedBehavior) {
  const auto expect = [&](const std::string& arguments, const char* text) {
    fs::remove_all(run_dir());
    const Outcome outcome = train(arguments + " --nodes 2");
    EXPECT_THAT(outcome.out, HasSubstr(text)) << arguments << "\n";
  };
  expect("--max-steps 1 --exchange loco --set exchange.bits=1 --set exchange.scale=2^10",
         "notice: codes of 1 bit cannot saturate, so no check shows whether exchange.scale=2^10 fits");
  expect("--max-steps 4 --optimizer one_bit_adam --set optimizer.warmup_steps=2 --set optimizer.bias_correction=false",
         "notice: one_bit_adam freezes its second moment after 2 changes, at 0.2 % of g², so its steps are 22.4 times "
         "as long as Adam's");
  expect(
      "--max-steps 1 --optimizer adafactor --set exchange.sharding=zero2 --set bucket.first_mib=0.1 --set "
      "bucket.mib=0.1",
      "notice: shards differ in size");
  expect("--max-steps 4 --set schedule=multi_step --set schedule.milestones=30,60",
         "notice: schedule.milestones: the first is after 30 epochs, but this run ends after ");
}

TEST_F(TrainResnet, RefusesToOverwriteARun) {
  ASSERT_EQ(train("--batch 8").exit_code, 0);
  const std::string before = read_file(run_dir() / "metrics.jsonl");
  const Outcome outcome = train("--batch 8");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("run"));
  EXPECT_EQ(read_file(run_dir() / "metrics.jsonl"), before);
}

TEST_F(TrainResnet, StopsAtANonFiniteLoss) {
  for (const char* steps : {"20", "1"}) {  // detected by the next step's loss, and by the evaluation
    const Outcome outcome =
        train(std::string("--optimizer sgd --lr 1e30 --nodes 2 --batch 8 --epochs 10 --max-steps ") + steps);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.err, HasSubstr("lower --lr"));
    EXPECT_FALSE(fs::exists(run_dir() / "weights.safetensors"));
    fs::remove_all(run_dir());
  }
}

}  // namespace train_resnet_test
}  // namespace godwit
