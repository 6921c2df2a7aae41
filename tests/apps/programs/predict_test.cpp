// tools/predict: its bucket plan must equal the engine's, and its times have closed forms.
#include <iterator>
#include <set>

#include "models/bert.h"
#include "models/bert_config.h"
#include "models/gpt2.h"
#include "models/image_model.h"
#include "models/llama.h"
#include "models/lstm.h"
#include "models/make_causal_lm.h"
#include "models/resnet.h"
#include "models/vgg.h"
#include "models/vit.h"
#include "tests/apps/programs/train_resnet.h"

namespace godwit {
namespace predict_test {

using nlohmann::json;
using ::testing::HasSubstr, ::testing::Not;

class Predict : public TrainResnet {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  Outcome predict(const std::string& arguments, const std::string& environment = "") const {
    const std::string line = "cd '" + folder_.string() + "' && timeout 60 env " + environment +
                             " '" GODWIT_SHELL_SOURCE_DIR "/tools/predict' " + arguments + " >out 2>err </dev/null";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder_ / "out"), read_file(folder_ / "err")};
  }
  json predicted(const std::string& arguments) const {
    const Outcome outcome = predict(arguments + " --json");
    EXPECT_EQ(outcome.exit_code, 0) << arguments << ": " << outcome.err;
    return json::parse(outcome.out, nullptr, false);
  }
  void expect_plan(const std::string& arguments, const nn::Module& model) const {
    const Buckets buckets(model.parameters(), {});
    const json plan = predicted("--batch 1 --step-ms 1 --nodes 2 --methods dense --model " + arguments);
    EXPECT_EQ(plan["parameters"], buckets.numel()) << arguments;
    ASSERT_EQ(plan["buckets"].size(), static_cast<size_t>(buckets.size())) << arguments;
    for (const Bucket& bucket : buckets)
      EXPECT_EQ(plan["buckets"][static_cast<size_t>(bucket.index)]["values"], bucket.numel)
          << arguments << ", bucket " << bucket.index;
  }
  // The column "pays" by method.
  static std::map<std::string, std::string> pays_of(const Outcome& outcome) {
    std::map<std::string, std::string> pays;
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);)
      if (const size_t at = line.find("%  "); at != std::string::npos)
        pays[line.substr(0, line.find(' '))] = line.substr(at + 3);
    return pays;
  }
  void expect_says(const std::string& arguments, const std::string& text, const std::string& environment = "") const {
    const Outcome outcome = predict(arguments, environment);
    EXPECT_NE(outcome.exit_code, 0) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(text)) << arguments;
    EXPECT_THAT(outcome.err, Not(HasSubstr("Traceback")));
  }
  static constexpr const char* kResNet = "--model resnet18 --batch 4 ";
  // Kernels that take no time.
  static constexpr const char* kLinkOnly =
      " --kernels 1e15 --efficiency 0.5 --latency 100 --nodes 4 --methods dense,birder";
};

TEST_F(Predict, HasTheBucketsOfTheEngine) {
  expect_plan("resnet50", ResNet(resnet_config("resnet50")));
  expect_plan("vgg16_cifar", Vgg(vgg_config("vgg16_cifar")));
  expect_plan("vit_tiny", Vit(vit_config("vit_tiny")));
  expect_plan("bert_mini", BertForQuestionAnswering(bert_config("bert_mini")));
  BertConfig small = bert_config("bert_tiny");
  small.vocab_size = 8000;
  expect_plan("bert_tiny_pretraining --classes 8000", BertForPreTraining(small));
  expect_plan("lstm_awd", LstmLanguageModel(lstm_config("lstm_awd")));
  for (const char* name : {"llama_nano", "llama_micro", "mixtral_nano"}) {
    LlamaConfig config = llama_config(name);
    config.vocab_size = 65;
    expect_plan(name, Llama(config));
  }
  for (const auto& [name, positions] : {std::pair<const char*, int64_t>{"gpt2_nano", 64}, {"gpt2_micro", 256}}) {
    Gpt2Config config = gpt2_config(name);
    config.vocab_size = 65;
    config.n_positions = positions;
    expect_plan(name, Gpt2(config));
  }
}

TEST_F(Predict, KnowsTheModelsOfThePrograms) {
  std::istringstream help(predict("--help").out);
  const std::set<std::string> words{std::istream_iterator<std::string>(help), {}};
  std::vector<std::string> pretraining = bert_names();
  for (std::string& name : pretraining) name += "_pretraining";
  for (const auto& names : {image_model_names(), bert_names(), pretraining, lstm_names(), causal_lm_names()})
    for (const std::string& name : names) EXPECT_TRUE(words.contains(name + ",") || words.contains(name)) << name;
}

// Numbers of parameters in torchvision and HuggingFace.
TEST_F(Predict, CountsTheParametersOfLargeModels) {
  for (const auto& [name, parameters] :
       {std::pair<const char*, int64_t>{"vgg16", 138357544}, {"bert_large", 334094338}, {"gpt2_xl", 1557611200},
        {"llama3_1b", 1235814400}, {"llama3_8b", 8030261248}, {"mistral_7b", 7241732096},
        {"qwen2_0_5b", 494032768}, {"mixtral_8x7b", 46702792704}})
    EXPECT_EQ(predicted(std::string("--batch 1 --step-ms 1 --methods dense --nodes 2 --model ") + name)["parameters"],
              parameters)
        << name;
}

// Dense: every rank sends a quarter of each bucket to 3 others, twice, or if this is faster, a small bucket to 3
// others. Birder sends 1/32 of that.
TEST_F(Predict, WithoutComputationAStepIsTheTimeOfTheLink) {
  const json all = predicted(kResNet + std::string("--step-ms 1e-9 --bandwidth 800mbit") + kLinkOnly);
  double dense = 0, birder = 0;
  for (const json& bucket : all["buckets"]) {
    const double padded = std::ceil(bucket["values"].get<double>() / 128) * 128;
    const double two_rounds = 2 * 3 * (100e-6 + padded / 4 * 4 / 50e6), one_round = 3 * (100e-6 + padded * 4 / 50e6);
    dense += 4 * padded * 4 <= 64 << 10 ? std::min(one_round, two_rounds) : two_rounds;
    birder += 2 * 3 * (100e-6 + padded / 4 / 8 / 50e6);
  }
  EXPECT_NEAR(all["results"][0]["seconds"].get<double>(), dense, 1e-6 * dense);
  EXPECT_NEAR(all["results"][1]["seconds"].get<double>(), birder, 1e-6 * birder);
}

// A link without limit, on which every message takes 100 µs. An all-gather takes 6 rounds if the parts of 32 nodes have
// at most 16 KiB, and an all-to-all always 63 messages.
TEST_F(Predict, SmallAllGathersTakeFewRounds) {
  const json all = predicted(kResNet + std::string("--step-ms 1e-9 --kernels 1e15 --bandwidth unlimited --latency 100 "
                                                   "--nodes 64 --methods birder"));
  int small = 0;
  double expected = 0;
  for (const json& bucket : all["buckets"]) {
    const double padded = std::ceil(bucket["values"].get<double>() / 2048) * 2048;
    const bool in_rounds = padded / 8 / 64 * 32 <= 16 << 10;
    small += in_rounds;
    expected += 100e-6 * (63 + (in_rounds ? 6 : 63));
  }
  EXPECT_GT(small, 0);
  EXPECT_LT(small, std::ssize(all["buckets"]));
  EXPECT_NEAR(all["results"][0]["seconds"].get<double>(), expected, 1e-6 * expected);
}

// With two workers per node, 1 + 2 + 2 + 2 messages leave a node in the 4 rounds of 16 ranks.
TEST_F(Predict, WorkersShareTheLinkInRounds) {
  const json all = predicted(
      "--model resnet18 --batch 1 --step-ms 1e-9 --kernels 1e15 --bandwidth unlimited --latency 100 --intra-latency 0 "
      "--intra-bandwidth unlimited --nodes 8 --workers-per-node 2 --methods birder_naive");
  double expected = 0;
  for (const json& bucket : all["buckets"]) {
    const double padded = std::ceil(bucket["values"].get<double>() / 512) * 512;
    expected += 100e-6 * (padded / 8 * 8 <= 16 << 10 ? 7 : 2 * 14);
  }
  EXPECT_NEAR(all["results"][0]["seconds"].get<double>(), expected, 1e-6 * expected);
}

TEST_F(Predict, AnUnlimitedLinkCostsNothing) {
  for (const json& result :
       predicted(kResNet + std::string("--step-ms 50 --bandwidth unlimited --methods all --kernels 1e15 "
                                       "--latency 0 --intra-bandwidth unlimited --intra-latency 0"))["results"])
    EXPECT_NEAR(result["seconds"].get<double>(), 0.05, 1e-9) << result["method"];
}

// The first bucket, a bias, is exchanged before the second one is complete. From then on a slow link is busy, and hides
// the rest of the backward pass. A fast link exposes the last bucket, which is complete when backward ends.
TEST_F(Predict, BackwardHidesCommunication) {
  const std::string one_step = kResNet + std::string("--step-ms 300 ") + kLinkOnly;
  const auto exchange = [](double values, double rate) { return 2 * 3 * (100e-6 + values / rate); };
  const json slow = predicted(one_step + " --bandwidth 100mbit"), fast = predicted(one_step + " --bandwidth 100gbit");
  const double first = exchange(1024, 6.25e6), begin = slow["buckets"][1]["ready_s"];
  EXPECT_LT(slow["buckets"][0]["ready_s"].get<double>() + first, begin);
  const double communication = slow["results"][0]["communication"];
  EXPECT_NEAR(slow["results"][0]["exposed"].get<double>(), communication - first - (0.3 - begin), 1e-6);
  const json& last = fast["buckets"].back();
  EXPECT_NEAR(last["ready_s"].get<double>(), 0.3, 1e-9);
  EXPECT_NEAR(fast["results"][0]["exposed"].get<double>(), exchange(last["values"], 6.25e9), 1e-6);
  const json late = predicted(one_step + " --bandwidth 100mbit --no-overlap");
  EXPECT_NEAR(late["results"][0]["exposed"].get<double>(), communication, 1e-6);
}

// Only the backward pass of the last micro-batch hides communication: gradients arrive in the last quarter of the step.
TEST_F(Predict, TheLastMicroBatchHidesCommunication) {
  const std::string step = kResNet + std::string("--bandwidth 100mbit") + kLinkOnly;
  const json one = predicted(step + " --step-ms 75"), four = predicted(step + " --step-ms 300 --accumulation 4");
  ASSERT_EQ(one["buckets"].size(), four["buckets"].size());
  for (size_t i = 0; i < one["buckets"].size(); ++i)
    EXPECT_NEAR(four["buckets"][i]["ready_s"].get<double>(), 0.225 + one["buckets"][i]["ready_s"].get<double>(), 1e-9);
  for (int method : {0, 1})
    EXPECT_NEAR(four["results"][method]["exposed"].get<double>(), one["results"][method]["exposed"].get<double>(),
                1e-9);
}

// Two nodes of two workers over MPI: each worker sends 3/4 of the bucket, of which two parts of three leave the node.
TEST_F(Predict, WorkersShareTheLinkOfTheirNode) {
  const std::string two =
      kResNet +
      std::string(
          "--step-ms 1e-9 --kernels 1e15 --nodes 2 --workers-per-node 2 --latency 0 "
          "--intra-latency 0 --intra-bandwidth unlimited --efficiency 1 --bandwidth 80mbit --methods dense,birder");
  double bytes = 0;
  const json pairs = predicted(two), trees = predicted(two + " --transport nccl");
  for (const json& bucket : pairs["buckets"]) bytes += 4 * std::ceil(bucket["values"].get<double>() / 128) * 128;
  const auto seconds = [](const json& all, int method) { return all["results"][method]["seconds"].get<double>(); };
  EXPECT_NEAR(seconds(pairs, 0), 2 * 2 * 2 * bytes / 4 / 10e6, 1e-6 * bytes);
  EXPECT_NEAR(seconds(trees, 0), 2 * bytes / 2 / 10e6, 1e-6 * bytes);
  EXPECT_NEAR(seconds(pairs, 1), 2 * bytes / 32 / 2 / 10e6, 1e-6 * bytes);
  EXPECT_NEAR(seconds(trees, 1), seconds(pairs, 1), 1e-9);
}

// An update with SGD reads and writes 12 bytes per value, with momentum 20, with Adam 28.
TEST_F(Predict, ComparesMethodsWithTheSameOptimizer) {
  const std::string step = "--model resnet18 --batch 1 --step-ms 1 --nodes 2 --kernels 1 --methods dense,topk,loco";
  for (const auto& [optimizer, bytes] : std::map<std::string, double>{
           {"", 20}, {" --optimizer sgd", 12}, {" --optimizer sgdm", 20}, {" --optimizer adam", 28}}) {
    const json all = predicted(step + optimizer);
    const double seconds = bytes * all["parameters"].get<double>() / 1e9;
    for (const json& result : all["results"])
      EXPECT_NEAR(result["update"].get<double>(), seconds, 1e-9) << result["method"] << optimizer;
  }
}

// bench_methods has counted the bytes per parameter that a worker sends between 4 nodes of 2 workers.
TEST_F(Predict, EveryMethodSendsTheBytesOfTheEngine) {
  const json all = predicted(
      "--model resnet18 --batch 1 --step-ms 1e-9 --nodes 4 --workers-per-node 2 --methods all --warm-up 0 --latency 0 "
      "--efficiency 1 --bandwidth 8mbit --intra-latency 0 --intra-bandwidth unlimited");
  std::map<std::string, double> bytes;
  for (const json& result : all["results"])
    bytes[result["method"]] = result["communication"].get<double>() * 1e6 / 2 / all["parameters"].get<double>();
  std::istringstream page(read_file(GODWIT_SOURCE_DIR "/docs/methods/measured.md"));
  int compared = 0;
  for (std::string line; std::getline(page, line);) {
    const std::string prefix = "adamw with ";
    const size_t begin = line.starts_with(prefix) ? prefix.size() : 0;
    const std::string method = line.substr(begin, line.find(' ', begin) - begin);
    double state, exchange, masters, within, between;
    if (line.size() < 39 || !bytes.count(method) || method == "zero_one_adam") continue;  // the page has one step of it
    if (method == "powersgd") continue;  // depends on the shapes of matrices
    if (std::sscanf(line.c_str() + 35, "%lf %lf %lf %lf %lf", &state, &exchange, &masters, &within, &between) != 5)
      continue;
    EXPECT_NEAR(bytes[method], between, 0.02 * between) << method;
    ++compared;
  }
  EXPECT_EQ(compared, 16);
}

TEST_F(Predict, FasterLinksAndFewerNodesAreNeverSlower) {
  std::map<std::string, double> before;
  for (const char* bandwidth : {"10mbit", "1gbit", "100gbit"}) {
    std::map<std::string, double> of_nodes;
    for (const json& result :
         predicted(kResNet + std::string("--step-ms 50 --methods all --nodes 2,4,64,4096 --bandwidth ") +
                   bandwidth)["results"]) {
      const std::string method = result["method"], key = method + " " + result["nodes"].dump();
      const double seconds = result["seconds"];
      EXPECT_GE(seconds, 0.05) << key;
      // Owners' kernels process 1/nodes of the values, which may save a few milliseconds.
      EXPECT_GE(seconds, of_nodes[method] - 0.005) << key;
      EXPECT_LE(seconds, before.try_emplace(key, seconds).first->second) << key;
      before[key] = of_nodes[method] = seconds;
    }
  }
}

// An all-gather of the signs of 64 workers is too large for a slow link, and costs more than dense within the node.
// Hierarchical sends the bytes of dense between nodes, and more within. Random-k always sends less than dense.
TEST_F(Predict, ReportsTheBandwidthsAtWhichAMethodPays) {
  const Outcome outcome = predict(
      "--model bert_base --batch 3 --step-ms 58 --transport nccl --nodes 8 --workers-per-node 8 --intra-bandwidth "
      "2400gbit --methods all");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  auto pays = pays_of(outcome);
  EXPECT_EQ(pays["hierarchical"], "nowhere");
  EXPECT_TRUE(pays["birder"].starts_with("below ")) << pays["birder"];
  EXPECT_TRUE(pays["birder_naive"].starts_with("above ")) << pays["birder_naive"];
  EXPECT_NE(pays["birder_naive"].find(", below "), std::string::npos) << pays["birder_naive"];
  EXPECT_EQ(pays["randomk"], "at every bandwidth");
}

// Limits that are close to each other have overlapping dots.
TEST_F(Predict, TheLegendOfThePlotStatesTheLimits) {
  const Outcome outcome = predict("--model bert_base --batch 3 --step-ms 58 --nodes 8 --plot a.svg");
  if (outcome.err.find("--plot needs matplotlib") != std::string::npos) GTEST_SKIP() << outcome.err;
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string image = read_file(folder_ / "a.svg");
  const auto pays = pays_of(outcome);
  EXPECT_EQ(pays.size(), 5u) << outcome.out;
  for (const auto& [method, limits] : pays) EXPECT_THAT(image, HasSubstr("<!-- " + method + ", " + limits + " -->"));
}

TEST_F(Predict, AgreesWithPublishedThroughputs) {
  const std::string line =
      "python3 '" GODWIT_SHELL_SOURCE_DIR "/bench/predict_validation.py' papers >'" + (folder_ / "out").string() + "'";
  ASSERT_EQ(std::system(line.c_str()), 0);
  const std::string out = read_file(folder_ / "out");
  const auto percent = [&](const std::string& words) {
    const size_t at = out.find(words);
    return at == std::string::npos ? 100 : std::stod(out.substr(at + words.size()));
  };
  EXPECT_LT(percent("mean error of Birder and dense "), 15) << out;
  EXPECT_LT(percent("mean error of Adam and LoCo "), 11) << out;
  EXPECT_LT(percent("mean error, loco, a100_roce, the row's GPUs: "), 4) << out;
}

TEST_F(Predict, TakesARunDirectory) {
  TrainResnet::SetUp();
  ASSERT_EQ(train("--model resnet20 --optimizer birder --nodes 2 --batch 4").exit_code, 0);
  const json all = predicted("--run run --nodes 4 --bandwidth 10mbit --methods dense,birder");
  EXPECT_EQ(all["model"], "resnet20");
  EXPECT_DOUBLE_EQ(all["computation_s"].get<double>(), metrics()[1]["computation_s"].get<double>());
  EXPECT_LT(all["results"][1]["seconds"], all["results"][0]["seconds"]);
  EXPECT_GT(all["results"][1]["pays_bit_s"][0][1], 10e6);
  expect_says("--run run --batch 8",
              "--batch 8: the computation was measured with 4; leave --batch out, or add --step-ms");
  expect_says("--run run --size 64",
              "--size 64: the computation was measured with 8; leave --size out, or add --step-ms");
  expect_says("--run run --classes 1000", "--classes 1000: the computation was measured with 4; leave --classes out");
  expect_says("--run run --model resnet50", "--model resnet50: the computation was measured with resnet20");
  EXPECT_EQ(predicted("--run run --model resnet50 --step-ms 70 --methods birder")["computation_s"], 0.07);
  std::filesystem::remove_all(folder_ / "data");
  const Outcome unread = predict("--run run"), given = predict("--run run --size 8");
  EXPECT_EQ(unread.exit_code, 0) << unread.err;
  EXPECT_THAT(unread.err, HasSubstr("the images of run cannot be read; assuming a side of 32 pixels"));
  EXPECT_EQ(given.exit_code, 0) << given.err;
  EXPECT_EQ(given.err, "");
  json summary = json::parse(read_file(run_dir() / "summary.json"));
  json damaged = summary;
  damaged["nodes"] = "2";
  write_file(run_dir() / "summary.json", damaged.dump());
  expect_says("--run run", "is not from a finished run (ValueError: nodes is '2', expected a number from 1 on)");
  damaged = summary;
  damaged["step_s"]["update"] = -1;
  write_file(run_dir() / "summary.json", damaged.dump());
  expect_says("--run run", "update is -1, expected a number from 0 on");
  summary.erase("step_s");  // as in runs of earlier versions
  write_file(run_dir() / "summary.json", summary.dump());
  expect_says("--run run", "has no 'step_s'; the run is not finished, or of another version of Godwit");
}

TEST_F(Predict, TakesTheMicroBatchesOfTheRun) {
  TrainResnet::SetUp();
  ASSERT_EQ(train("--model resnet20 --batch 2 --accumulation 4 --set checkpoint.at_end=false").exit_code, 0);
  const json all = predicted("--run run --nodes 2 --methods dense");
  EXPECT_GE(all["buckets"][0]["ready_s"].get<double>(), 0.75 * all["computation_s"].get<double>());
  EXPECT_EQ(predicted("--run run --nodes 2 --methods dense --batch 8 --accumulation 4"), all);
  expect_says("--run run --accumulation 2",
              "--accumulation 2: the computation was measured with 4; leave --accumulation");
}

TEST_F(Predict, TakesOptimizerAndBucketsOfTheRun) {
  TrainResnet::SetUp();
  done("--model resnet20 --optimizer adamw --batch 4 --max-steps 2 --set log_every=1 --set bucket.first_mib=0.1");
  const std::string run = "--run run --nodes 2 --kernels 1 --methods dense,loco";
  const json all = predicted(run);
  for (const json& result : all["results"])
    EXPECT_NEAR(result["update"].get<double>(), 28 * all["parameters"].get<double>() / 1e9, 1e-9) << result["method"];
  const auto update = [&](const std::string& flags) {
    return predicted("--run run --nodes 2 --methods dense" + flags)["results"][0]["update"].get<double>();
  };
  EXPECT_NEAR(update(" --optimizer sgd") / update(""), 12.0 / 28, 1e-6) << "the run gives the speed of the kernels";
  EXPECT_EQ(predicted(run + " --bucket-first-mib 0.1"), all);
  EXPECT_NE(predicted(run + " --bucket-first-mib 1")["buckets"], all["buckets"]);
}

// The images of the run have one channel and 8 × 8 pixels.
TEST_F(Predict, TakesTheSizesOfTheRun) {
  TrainResnet::SetUp();
  const auto expect_its_parameters = [&] {
    const json summary = json::parse(read_file(run_dir() / "summary.json"));
    EXPECT_EQ(predicted("--run run --nodes 2 --methods dense")["parameters"], summary["parameters"]);
    return summary;
  };
  for (const char* model :
       {"resnet20", "resnet18 --set model.small_stem=true", "vit_tiny --set model.layers=1 --set model.patch_size=2"}) {
    done(std::string("--batch 2 --max-steps 2 --set log_every=1 --set checkpoint.at_end=false --model ") + model);
    expect_its_parameters();
    const std::string other = "--run run --nodes 2 --methods dense --tflops 1";
    EXPECT_EQ(predicted(other)["flops"], predicted(other + " --size 8")["flops"]) << model;
    EXPECT_LT(predicted(other)["flops"], predicted(other + " --size 16")["flops"]) << model;
  }
  std::filesystem::remove_all(run_dir());
  std::string text;
  for (int i = 0; i < 600; ++i) text += "word" + std::to_string(i * i % 97) + (i % 10 == 9 ? "\n\n" : " ");
  write_file(folder_ / "text.txt", text);
  const std::string line = "cd '" + folder_.string() + "' && '" GODWIT_SHELL_BINARY_DIR "/train_lm' --data text.txt" +
                           " --batch 2 --length 5 --set data.vocab_size=20 --set data.hold_out=10" +
                           " --set model.hidden=16 --set model.embedding=8 --set model.layers=3 --max-steps 2" +
                           " --set log_every=1 --run-dir run >out 2>err </dev/null";
  ASSERT_EQ(std::system(line.c_str()), 0) << read_file(folder_ / "err");
  json summary = expect_its_parameters();
  summary["parameters"] = summary["parameters"].get<int>() + 1;
  write_file(run_dir() / "summary.json", summary.dump());
  expect_says("--run run", " parameters, which no number of classes or words of lstm_small gives; use --model");
}

TEST_F(Predict, RefusesBadInput) {
  const std::string good = "--model resnet50 --batch 32 --step-ms 70 ";
  expect_says("--model resnet_50 --batch 32 --step-ms 70", "there is no model 'resnet_50'; did you mean 'resnet50'?");
  expect_says(good + "--methods dense,berder", "there is no method 'berder'; did you mean 'birder'?");
  expect_says(good + "--methods nope", "there is no method 'nope'; expected one of dense, dense_bf16, ");
  expect_says(good + "--workers-per-node 0", "'0': expected a number from 1 on");
  expect_says(good + "--nodes 4,0", "'0': expected a number from 1 on");
  expect_says(good + "--nodes 1024 --workers-per-node 8", "expected 2 to 4096 workers in all");
  expect_says(good + "--bandwidth=-1gbit", "'-1gbit': expected a rate of at least 1 bit/s such as 100mbit");
  expect_says(good + "--latency inf", "'inf': expected a number from 0 to 1e+09");
  expect_says(good + "--efficiency 1e-320", "'1e-320': expected a number from 0.001 to 1");
  expect_says(good + "--kernels 1e-320", "'1e-320': expected a number from 1e-06 to 1e+18");
  expect_says("--model bert_base --batch 3 --step-ms 58 --size 513", "--size 513: bert_base has 512 positions");
  expect_says("--model gpt2 --batch 3 --step-ms 58 --size 1025", "--size 1025: gpt2 has 1024 positions");
  expect_says("--model vit_tiny --batch 3 --step-ms 58 --size 100",
              "--size 100: vit_tiny needs images with a multiple of 16 pixels per side");
  expect_says("--model resnet50 --batch 32", "expected --model, --batch, and --step-ms or --tflops; or --run");
  expect_says(good + "--tflops 10", "--step-ms and --tflops both give the computation; leave one of them out");
  expect_says(good + "--accumulation 5", "--batch 32: expected a multiple of --accumulation 5");
  expect_says("--model vgg16 --batch 32 --step-ms 70 --size 1", "--size 1: vgg16 needs larger images");
  expect_says("--model vit_b_16 --batch 32 --step-ms 70 --size 15", "--size 15: vit_b_16 needs larger images");
  expect_says("--run nowhere", "nowhere: no finished run can be read: there is no nowhere/config.json");
  expect_says(good + "--plot no/such/folder.png", "--plot no/such/folder.png: there is no folder no/such");
  write_file(folder_ / "hidden" / "matplotlib.py", "raise ImportError\n");
  expect_says(good + "--plot a.png", "--plot needs matplotlib", "PYTHONPATH=hidden");
}

}  // namespace predict_test
}  // namespace godwit
