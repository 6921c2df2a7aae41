// The Trainer on GPUs. Ranks that share a GPU must train like ranks on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/image/image_batches.h"
#include "apps/image/image_config.h"
#include "apps/train/device_sum.h"
#include "apps/train/loader.h"
#include "apps/train/trainer.h"
#include "autograd/accumulate.h"
#include "autograd/ops/relu.h"
#include "autograd/ops/reshape.h"
#include "autograd/ops/scale.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/host_tensor.h"
#include "comm/transport/local.h"
#include "data/image/raw_images.h"
#include "engine/gpu.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/replicas.h"
#include "nn/weights.h"
#include "tests/support.h"

namespace godwit::apps {
namespace cuda_trainer_test {

using ::testing::HasSubstr;

// `count` images of 8×8 pixels in three classes.
data::InMemoryDataset made_images(int64_t count) {
  data::RawImages set{Shape{8, 8, 1}, 3, {}, {}};
  for (int64_t i = 0; i < count * 64; ++i) set.pixels.push_back(static_cast<uint8_t>(i * i * 37 % 251));
  for (int64_t i = 0; i < count; ++i) set.labels.push_back(static_cast<int32_t>(i % 3));
  return {std::move(set), {.mean = {0.5f}, .std = {0.25f}, .flip = true, .seed = 1}};
}

class Net : public nn::Module {
 public:
  Net() : hidden_(64, 33), outputs_(33, 3) {
    add("hidden", hidden_);
    add("outputs", outputs_);
    passes_ = add_buffer("passes", Tensor::zeros({1}));
    nn::initialize(*this, 7);
  }
  Var forward(const Var& images) const {
    const Var x = ops::reshape(images, {images.dim(0), 64});
    if (training()) on_device(passes_, [&](auto device) { accumulate(device, Tensor::full({1}, 1), passes_); });
    return outputs_(ops::relu(hidden_(x)));
  }

 private:
  nn::Linear hidden_, outputs_;
  Tensor passes_;
};

struct Images {
  data::InMemoryDataset train = made_images(96), test = made_images(14);
};

// x, whose gradient becomes NaN.
Var poison_gradient(const Var& x) {
  return Var::result(x.value(), {x}, [dx = x.gradient()](const Tensor& dy) {
    dx.add(Tensor::full(dy.shape(), static_cast<double>(NAN)));
  });
}

enum class Poison { loss, gradient };

class NetTask : public Task {
 public:
  NetTask(const ImageConfig& config, const Images& images, Communicator& comm, int64_t poisoned, Poison poison)
      : comm_(comm),
        poisoned_(poisoned),
        poison_(poison),
        train_(images.train, loader_options(config, config.data, comm, true, 0)),
        test_(images.test, loader_options(config, config.data, comm, false, 3)) {}

  nn::Module& model() override { return net_; }
  std::string name() const override { return "net"; }
  std::string unit() const override { return "images"; }
  int64_t batch_samples() const override { return 1; }
  int64_t batches() const override { return train_.batches(); }
  void start_epoch(int64_t epoch, int64_t first_batch) override { train_.start_epoch(epoch, first_batch); }
  void average_buffers() override { nn::average_buffers(net_, *comm_.world); }
  void save(const std::string& run_dir, const std::string& which) override {
    nn::save_weights(run_dir + "/" + which + ".safetensors", net_);
  }
  Forward forward(int64_t micro_batch) override {
    const data::Batch batch = train_.next().value();
    EXPECT_EQ(batch.images.device(), context().device);
    return loss(batch, micro_batch == poisoned_ && comm_.rank == 1);
  }
  LoadedBatch load_batch(int64_t) override {
    const data::Batch batch = train_.next().value();
    if (!fixed_.images.defined()) fixed_ = {batch.images.clone(), batch.labels.clone()};
    fixed_.images.copy_from(batch.images);
    fixed_.labels.copy_from(batch.labels);
    return {{batch.images.dim(0)}, 0};
  }
  Forward forward_loaded() override { return loss(fixed_, false); }
  Forward loss(const data::Batch& batch, bool poisoned) const {
    const Var logits = net_.forward(Var(batch.images));
    Var loss = ops::softmax_cross_entropy(logits, batch.labels);
    if (poisoned) loss = poison_ == Poison::loss ? ops::scale(loss, static_cast<double>(NAN)) : poison_gradient(loss);
    const double count = static_cast<double>(batch.labels.numel());
    return {.loss = loss,
            .correct = {ops::top_k_correct(logits.value(), batch.labels, 1)},
            .answers = count,
            .samples = count};
  }
  std::vector<std::string> figures() const override { return {"test_loss"}; }
  Evaluation evaluate(const ReadParameters& read, const CheckStop&) override {
    const NoGrad no_grad;
    net_.train(false);
    test_.start_epoch(0);
    DeviceSum losses;
    double count = 0;
    read([&] {
      while (const auto batch = test_.next()) {
        const double samples = static_cast<double>(batch->labels.numel());
        losses.add(ops::softmax_cross_entropy(net_.forward(Var(batch->images)), batch->labels).value(), samples);
        count += samples;
      }
    });
    net_.train();
    const Tensor sums = cpu_tensor<double>({losses.sum(), count});
    comm_.world->all_reduce(sums, Reduce::sum, "test");
    EXPECT_EQ(sums.item(1), 14);
    return {.loss = sums.item(0) / sums.item(1), .metrics = {}, .text = "evaluated"};
  }

 private:
  Communicator& comm_;
  int64_t poisoned_;
  Poison poison_;
  ImageBatches train_, test_;
  data::Batch fixed_;
  Net net_;
};

struct Trained {
  std::vector<double> losses;  // per step, without non-finite ones
  double test_loss = 0;        // of the last evaluation
  std::vector<float> weights;  // as saved
  std::string printed;
};

Trained trained(const std::string& device, int ranks, const std::function<void(ImageConfig&)>& change,
                int64_t poisoned = -1, Poison poison = Poison::loss) {
  const TempFolder folder;
  const Images images;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::tmpfile(), std::fclose);
  Progress progress(out.get(), Progress::Style::lines);
  Trained run;
  const auto body = [&](Communicator& comm) {
    ImageConfig config;
    config.optimizer = "birder";
    config.batch = 4;
    config.epochs = 2;
    config.log_every = 1;
    config.check_replicas = 1;
    config.run_dir = folder / "run";
    config.bucket.first_mib = 1.0 / 1024;  // several buckets
    config.bucket.mib = "0.0009765625";
    change(config);
    NetTask task(config, images, comm, poisoned, poison);
    const Evaluation last = Trainer(image_program(), config, task, comm).run(progress);
    if (comm.rank == 0) run.test_loss = last.loss.value();
    EXPECT_EQ(peak_gpu_bytes() > 64 * 33 * 4, context().device.is_cuda());
  };
  run_local({ranks, 1}, body, {.threads_per_rank = 1, .placement = {device, true}});
  std::ifstream metrics(folder / "run" + "/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);)
    if (const auto json = nlohmann::json::parse(line); json.contains("loss") && json["loss"].is_number())
      run.losses.push_back(json["loss"]);
  Net net;
  nn::load_weights(folder / "run" + (std::filesystem::exists(folder / "run/ema.safetensors") ? "/ema.safetensors"
                                                                                             : "/weights.safetensors"),
                   net);
  for (const Parameter& p : net.parameters())
    for (const float value : p.var.value().to_vector<float>()) run.weights.push_back(value);
  for (const nn::NamedTensor& b : net.buffers()) run.weights.push_back(b.tensor.to_vector<float>()[0]);
  std::rewind(out.get());
  for (int c; (c = std::getc(out.get())) != EOF;) run.printed += static_cast<char>(c);
  return run;
}

class CudaTrainer : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << why_no_cuda();
  }
};

// Gradients are summed in another order. Values very close to a threshold are therefore rounded differently: a random
// bit of Birder, a sign of 1-bit Adam, a bfloat16 gradient. A few weights then differ by a whole step, and all others a
// little. A wrong kernel changes most weights. `tolerance` bounds losses, and all weights except the 2 % that differ
// most, relative to the root mean square of the weights; those 2 % may differ by 0.2.
void expect_close(const Trained& found, const Trained& expected, double tolerance) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  ASSERT_FALSE(expected.losses.empty());
  for (size_t i = 0; i < expected.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i], expected.losses[i], tolerance * expected.losses[0]) << "step " << i + 1;
  EXPECT_NEAR(found.test_loss, expected.test_loss, tolerance * expected.losses[0]);
  ASSERT_EQ(found.weights.size(), expected.weights.size());
  std::vector<double> differences;
  double all = 0;
  for (size_t i = 0; i < found.weights.size(); ++i) {
    differences.push_back(std::abs(double{found.weights[i]} - double{expected.weights[i]}));
    all += std::pow(expected.weights[i], 2);
  }
  std::sort(differences.begin(), differences.end());
  const double size = std::sqrt(all / static_cast<double>(differences.size()));
  EXPECT_LE(differences[differences.size() * 98 / 100], tolerance * size);
  EXPECT_LE(differences.back(), 0.2 * size);
}

// The comparison itself: eight flipped signs pass; a small error of all weights, or of 3 % of them, does not.
TEST(CudaTrainerComparison, AllowsAFewFlippedSigns) {
  Trained expected{.losses = {1}, .test_loss = 1, .weights = std::vector<float>(2000, 0.1f), .printed = ""};
  Trained found = expected;
  for (size_t i = 0; i < 8; ++i) found.weights[i * 100] += 0.01f;
  expect_close(found, expected, 1e-3);
  EXPECT_NONFATAL_FAILURE(
      {
        Trained wrong = found;
        for (size_t i = 0; i < 60; ++i) wrong.weights[i] += 0.01f;
        expect_close(wrong, expected, 1e-3);
      },
      "differences[differences.size() * 98 / 100]");
  EXPECT_NONFATAL_FAILURE(
      {
        Trained wrong = found;
        for (float& weight : wrong.weights) weight *= 1.002f;
        expect_close(wrong, expected, 1e-3);
      },
      "differences[differences.size() * 98 / 100]");
}

TEST_F(CudaTrainer, RanksThatShareAGpuTrainLikeTheCpu) {
  for (const int ranks : {1, 4, 8})
    for (const char* optimizer : {"birder", "one_bit_adam"}) {
      SCOPED_TRACE(std::string(optimizer) + " of " + std::to_string(ranks));
      const auto change = [&](ImageConfig& config) {
        config.optimizer = optimizer;
        config.batch = 12 / std::min(ranks, 3);
      };
      const Trained here = trained("cpu", ranks, change), there = trained("cuda", ranks, change);
      expect_close(there, here, 2e-3);
      EXPECT_THAT(there.printed, HasSubstr("cuda:0, "));
      EXPECT_THAT(there.printed, HasSubstr(", of its GPU "));
    }
}

TEST_F(CudaTrainer, ClippingAccumulationAndAveragingMatchTheCpu) {
  const auto change = [](ImageConfig& config) {
    config.optimizer = "adamw";
    config.accumulation = 2;
    config.clip.norm = 0.25;
    config.ema.decay = 0.9;
    config.non_finite = "skip";
    config.exchange.set("wire", "bf16");
  };
  const Trained here = trained("cpu", 3, change), there = trained("cuda", 3, change);
  expect_close(there, here, 2e-3);
  EXPECT_EQ(there.weights.back(), here.weights.back()) << "the averaged pass counter";
}

TEST_F(CudaTrainer, CudaGraphsChangeOnlyTheTime) {
  for (const int ranks : {1, 3})
    for (const int accumulation : {1, 2, 3}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, accumulation " + std::to_string(accumulation));
      const auto change = [&](ImageConfig& config) {
        config.accumulation = accumulation;
        config.clip.norm = accumulation == 2 ? 0.25 : 0;
        config.ema.decay = accumulation == 2 ? 0.9 : 0;
        config.non_finite = accumulation == 3 ? "skip" : "fail";
      };
      const Trained expected = trained("cuda", ranks, change);
      const Trained found = trained("cuda", ranks, [&](ImageConfig& config) {
        change(config);
        config.cuda_graph = true;
      });
      EXPECT_EQ(found.losses, expected.losses);
      EXPECT_EQ(found.test_loss, expected.test_loss);
      EXPECT_EQ(found.weights, expected.weights);
      const int all = 2 * (96 / ranks / 4 / accumulation * accumulation);
      EXPECT_THAT(found.printed,
                  HasSubstr("CUDA graphs: " + std::to_string(all - 2 * accumulation) + " of " + std::to_string(all) +
                            " micro-batches were replayed from " + std::to_string(accumulation) + " captured graphs"));
    }
}

TEST_F(CudaTrainer, SkippedStepsLeaveNoTrace) {
  const auto change = [](ImageConfig& config) { config.non_finite = "skip"; };
  const Trained here = trained("cpu", 3, change, 2), there = trained("cuda", 3, change, 2);
  EXPECT_EQ(there.weights.back(), here.weights.back()) << "the pass counter must exclude the skipped step";
  EXPECT_THAT(there.printed,
              HasSubstr("step 3 skipped: the gradient of 'outputs.bias' at element 0 is not finite on rank 1"));
  EXPECT_THAT(here.printed,
              HasSubstr("step 3 skipped: the gradient of 'outputs.bias' at element 0 is not finite on rank 1"));
}

// A GPU's values of a step are read during the next step, or at once if the step is logged.
TEST_F(CudaTrainer, NamesTheStepOfANonFiniteLossOrGradient) {
  for (const char* device : {"cpu", "cuda"})
    for (const int64_t log_every : {1, 10})
      for (const char* method : {"birder", "one_bit_adam", "adamw", "adamw qsgd", "sgdm loco"})
        for (const Poison poison : {Poison::loss, Poison::gradient}) {
          SCOPED_TRACE(testing::Message() << method << " on " << device << ", log_every " << log_every);
          const std::string error = error_of([&] {
            trained(
                device, 3,
                [&](ImageConfig& config) {
                  std::istringstream words(method);
                  std::string optimizer, exchange;
                  words >> optimizer >> exchange;
                  config.optimizer = optimizer;
                  if (!exchange.empty()) config.exchange = exchange;
                  config.log_every = log_every;
                  config.check_replicas = 0;
                },
                2, poison);
          });
          EXPECT_THAT(error,
                      HasSubstr(poison == Poison::loss ? "rank 1: step 3: the loss is "
                                                       : "step 3: the gradient of 'outputs.bias' is nan at element 0"));
        }
}

TEST_F(CudaTrainer, LogsTheSameValuesWheneverTheyAreRead) {
  for (const char* device : {"cpu", "cuda"}) {
    const Trained every = trained(device, 3, [](ImageConfig&) {});
    const Trained fifth = trained(device, 3, [](ImageConfig& config) {
      config.log_every = 5;
      config.check_replicas = 0;
    });
    ASSERT_EQ(every.losses.size(), 16u);
    EXPECT_EQ(fifth.losses, (std::vector<double>{every.losses[0], every.losses[4], every.losses[9], every.losses[14],
                                                 every.losses[15]}));
    EXPECT_EQ(fifth.weights, every.weights);
    EXPECT_EQ(fifth.test_loss, every.test_loss);
  }
}

}  // namespace cuda_trainer_test
}  // namespace godwit::apps
