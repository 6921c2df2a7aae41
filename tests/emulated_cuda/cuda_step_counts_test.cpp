// Calls of CUDA in a step: launches, copies, memsets and waits of the host, through the Trainer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "apps/image/image_config.h"
#include "apps/text/text_task.h"
#include "apps/train/trainer.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/transport/local.h"
#include "models/resnet.h"
#include "tests/apps/small_data.h"
#include "tests/emulated_cuda/cuda_runtime.h"

namespace godwit::apps {
namespace {

// Of all workers together.
struct StepCounts {
  int64_t launches = 0, memsets = 0;
  int64_t to_gpu = 0, to_host = 0, on_gpu = 0;  // copies
  int64_t to_host_bytes = 0;
  int64_t waits = 0;        // of the host for the GPU
  int64_t allocations = 0;  // may wait too

  static StepCounts now() {
    const auto& all = emulated::counts;
    return {all.launches,
            all.memsets,
            all.copies[cudaMemcpyHostToDevice],
            all.copies[cudaMemcpyDeviceToHost],
            all.copies[cudaMemcpyDeviceToDevice],
            all.copied_bytes[cudaMemcpyDeviceToHost],
            all.synchronizations,
            all.allocations};
  }
  StepCounts operator-(const StepCounts& b) const {
    return {launches - b.launches, memsets - b.memsets,        to_gpu - b.to_gpu,
            to_host - b.to_host,   on_gpu - b.on_gpu,          to_host_bytes - b.to_host_bytes,
            waits - b.waits,       allocations - b.allocations};
  }
};

// A task that reads the counts before each forward pass, while all workers wait.
class CountedTask : public Task {
 public:
  CountedTask(std::unique_ptr<Task> task, Communicator& comm, std::vector<StepCounts>& counts)
      : task_(std::move(task)), comm_(comm), counts_(counts) {}

  nn::Module& model() override { return task_->model(); }
  std::string name() const override { return task_->name(); }
  std::string unit() const override { return task_->unit(); }
  int64_t batch_samples() const override { return task_->batch_samples(); }
  int64_t batches() const override { return task_->batches(); }
  void start_epoch(int64_t epoch, int64_t first_batch) override { task_->start_epoch(epoch, first_batch); }
  Forward forward(int64_t micro_batch) override {
    count();
    return task_->forward(micro_batch);
  }
  LoadedBatch load_batch(int64_t micro_batch) override {
    count();
    return task_->load_batch(micro_batch);
  }
  Forward forward_loaded() override { return task_->forward_loaded(); }
  void average_buffers() override { task_->average_buffers(); }
  Evaluation evaluate(const ReadParameters&) override { return {.loss = 0, .metrics = {}, .text = ""}; }
  void save(const std::string&, const std::string&) override {}

 private:
  void count() {
    comm_.world->barrier("count");
    if (comm_.rank == 0) counts_.push_back(StepCounts::now());
    comm_.world->barrier("counted");
  }

  std::unique_ptr<Task> task_;
  Communicator& comm_;
  std::vector<StepCounts>& counts_;
};

// Two stages of two bottleneck blocks, as in ResNet-50, on fixed images of 4×4 pixels.
class ResNetTask : public Task {
 public:
  explicit ResNetTask(const ImageConfig& config)
      : dtype_(config.dtype == "bf16" ? DType::bf16 : DType::f32),
        images_(Tensor::full({config.batch, 4, 4, 3}, 0.5)),
        labels_({config.batch}, DType::i32, kCpu),
        net_(make_resnet(
            {.blocks = {2, 2}, .bottleneck = true, .small_stem = true, .num_classes = 10, .dtype = dtype_})) {
    labels_.zero();
  }
  nn::Module& model() override { return *net_; }
  std::string name() const override { return "resnet"; }
  std::string unit() const override { return "images"; }
  int64_t batch_samples() const override { return labels_.numel(); }
  int64_t batches() const override { return 100; }
  void start_epoch(int64_t, int64_t) override {}
  Forward forward(int64_t) override { return forward_loaded(); }
  LoadedBatch load_batch(int64_t) override { return {{labels_.numel()}, 0}; }
  Forward forward_loaded() override {
    const Var logits = net_->forward(Var(images_));
    const auto images = static_cast<double>(labels_.numel());
    return {.loss = ops::softmax_cross_entropy(logits, labels_),
            .correct = {ops::top_k_correct(logits.value(), labels_, 1)},
            .answers = images,
            .samples = images};
  }
  Evaluation evaluate(const ReadParameters&) override { return {}; }
  void save(const std::string&, const std::string&) override {}

 private:
  DType dtype_;
  Tensor images_, labels_;
  std::unique_ptr<ResNet> net_;
};

constexpr int kFirst = 4, kSteps = 2;  // the steps that are measured; with CUDA graphs, the first two are not replays

class CudaStepCounts : public ::testing::Test {
 protected:
  std::filesystem::path folder() const { return scratch_.str(); }

  template <class Config, class MakeTask>
  std::vector<StepCounts> counts_of(const Program& program, Config config, int nodes, const MakeTask& make_task,
                                   bool nccl = false) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::tmpfile(), std::fclose);
    Progress progress(out.get(), Progress::Style::lines);
    std::vector<StepCounts> before;
    config.max_steps = kFirst + kSteps;
    config.run_dir = folder() / "run";
    std::filesystem::remove_all(config.run_dir);
    const auto body = [&](Communicator& comm) {
      Config own = config;
      CountedTask task(make_task(own, comm), comm, before);
      Trainer(program, own, task, comm).run(progress);
    };
    run_local({nodes, 1}, body, {.threads_per_rank = 1, .placement = {"cuda", /*share_gpu=*/!nccl}});
    std::vector<StepCounts> counts;
    for (size_t i = 0; i < kSteps; ++i) counts.push_back(before.at(kFirst + i) - before.at(kFirst + i - 1));
    return counts;
  }

  template <class Change>
  std::vector<StepCounts> resnet(int nodes, const Change& change, bool nccl = false) {
    ImageConfig config;
    config.optimizer = "birder";
    config.dtype = "bf16";
    config.batch = 2;
    change(config);
    return counts_of(
        image_program(), config, nodes,
        [&](const ImageConfig& own, Communicator&) { return std::make_unique<ResNetTask>(own); }, nccl);
  }

  // A BERT with two layers of 128 values, which have the structure of BERT-Base's.
  template <class Change>
  std::vector<StepCounts> bert(int nodes, const Change& change, bool nccl = false) {
    write_file(folder() / "tsv" / "train.tsv", reviews(64));
    write_file(folder() / "tsv" / "dev.tsv", reviews(4));
    TextConfig config;
    config.task = "classify";
    config.optimizer = "adamw";
    config.optimizer.set("decay_norm_and_bias", false);
    config.data.path = folder() / "tsv";
    config.data.length = 16;
    config.model.name = "bert_tiny";
    config.dtype = "bf16";
    config.batch = 2;
    change(config);
    const std::shared_ptr<const TextData> data = load_text_data(config, nullptr);
    return counts_of(
        text_program(), config, nodes,
        [&](const TextConfig& own, Communicator& comm) { return make_text_task(own, *data, comm); }, nccl);
  }

 private:
  TempFolder scratch_;
};

// The table. After a review of the change, replace a line by the one that the failed test prints. The steps of all
// workers are counted together.
struct Expected {
  const char* name;
  int64_t launches, memsets, to_host, on_gpu, waits;
};
constexpr Expected kTable[] = {
    {"resnet", 174, 0, 4, 6, 1},
    {"resnet, 2 workers", 352, 0, 8, 12, 2},
    {"resnet, adamw", 174, 2, 4, 6, 1},
    {"resnet, sgdm qsgd, 2 workers", 356, 16, 12, 24, 2},
    {"resnet, graph", 6, 0, 4, 0, 1},
    {"resnet, skip", 174, 2, 4, 36, 1},
    {"bert", 118, 6, 4, 22, 1},
    {"bert, birder, 2 workers", 240, 8, 8, 44, 2},
    {"bert, one_bit_adam, 2 workers", 252, 28, 16, 44, 2},
    {"bert, loco, 2 workers", 256, 24, 12, 48, 2},
    {"resnet, 2 workers, nccl", 352, 0, 8, 12, 2},
    {"bert, 2 workers, nccl", 236, 12, 8, 44, 2},
    {"bert, loco, 2 workers, nccl", 256, 24, 12, 48, 2},
    {"bert, one_bit_adam, 2 workers, nccl", 252, 28, 16, 44, 2},
    {"bert, zero2, 2 workers", 274, 30, 14, 42, 2},
    {"bert, zero3, 2 workers", 298, 32, 14, 42, 2},
    {"bert, zero3 in int8, 2 workers", 330, 74, 30, 62, 2},
    {"bert, zero3, 2 workers, nccl", 298, 32, 14, 42, 2},
    {"bert, clip", 123, 4, 3, 24, 1},
    {"bert, every step is logged", 118, 6, 4, 22, 1},
};

void expect_table(const std::string& name, const std::vector<StepCounts>& counts) {
  const Expected* line =
      std::find_if(std::begin(kTable), std::end(kTable), [&](const Expected& e) { return e.name == name; });
  ASSERT_NE(line, std::end(kTable)) << name;
  for (const StepCounts& step : counts) {
    EXPECT_EQ(step.allocations, 0) << name;
    EXPECT_TRUE(step.launches == line->launches && step.memsets == line->memsets && step.to_host == line->to_host &&
                step.on_gpu == line->on_gpu && step.waits == line->waits)
        << "{\"" << name << "\", " << step.launches << ", " << step.memsets << ", " << step.to_host << ", "
        << step.on_gpu << ", " << step.waits << "},\ncopies to the GPU " << step.to_gpu << ", bytes to the host "
        << step.to_host_bytes;
  }
}

// The host of a worker waits for its GPU at most once a step.
TEST(CudaStepCountsTable, AWorkerWaitsAtMostOncePerStep) {
  for (const Expected& line : kTable)
    EXPECT_LE(line.waits, std::string(line.name).find("2 workers") == std::string::npos ? 1 : 2) << line.name;
}

TEST_F(CudaStepCounts, ResNet) {
  expect_table("resnet", resnet(1, [](ImageConfig&) {}));
  expect_table("resnet, 2 workers", resnet(2, [](ImageConfig&) {}));
  expect_table("resnet, adamw", resnet(1, [](ImageConfig& config) { config.optimizer = "adamw"; }));
  expect_table("resnet, sgdm qsgd, 2 workers", resnet(2, [](ImageConfig& config) {
                 config.optimizer = "sgdm";
                 config.exchange = "qsgd";
               }));
  expect_table("resnet, graph", resnet(1, [](ImageConfig& config) { config.cuda_graph = true; }));
  expect_table("resnet, skip", resnet(1, [](ImageConfig& config) {
                 config.optimizer = "sgdm";
                 config.non_finite = "skip";
               }));
}

// "zero2", "zero3", or "zero3 in int8": parameters are gathered in int8.
auto sharded(const std::string& sharding) {
  return [sharding](TextConfig& config) {
    config.exchange.set("sharding", sharding.substr(0, 5));
    if (sharding.ends_with("int8")) config.exchange.set("parameter_wire", "int8");
    config.bucket.mib = "0.5", config.bucket.first_mib = 0.5;
  };
}

TEST_F(CudaStepCounts, Bert) {
  expect_table("bert", bert(1, [](TextConfig&) {}));
  expect_table("bert, birder, 2 workers", bert(2, [](TextConfig& config) {
                 config.optimizer = "birder";
                 config.optimizer.set("decay_norm_and_bias", false);
               }));
  expect_table("bert, one_bit_adam, 2 workers", bert(2, [](TextConfig& config) {
                 config.optimizer = "one_bit_adam";
                 config.optimizer.set("decay_norm_and_bias", false);
                 config.optimizer.set("warmup_steps", 2);
                 config.optimizer.set("refresh_variance", false);
               }));
  expect_table("bert, loco, 2 workers", bert(2, [](TextConfig& config) { config.exchange = "loco"; }));
  for (const std::string sharding : {"zero2", "zero3", "zero3 in int8"})
    expect_table("bert, " + sharding + ", 2 workers", bert(2, sharded(sharding)));
  expect_table("bert, clip", bert(1, [](TextConfig& config) { config.clip.norm = 0.1; }));
  expect_table("bert, every step is logged", bert(1, [](TextConfig& config) { config.log_every = 1; }));
}

// Workers with a GPU each: the host waits for no collective.
TEST_F(CudaStepCounts, Nccl) {
  expect_table("resnet, 2 workers, nccl", resnet(2, [](ImageConfig&) {}, true));
  expect_table("bert, 2 workers, nccl", bert(2, [](TextConfig&) {}, true));
  expect_table("bert, loco, 2 workers, nccl", bert(2, [](TextConfig& config) { config.exchange = "loco"; }, true));
  const auto one_bit_adam = [](TextConfig& config) {
    config.optimizer = "one_bit_adam";
    config.optimizer.set("decay_norm_and_bias", false);
    config.optimizer.set("warmup_steps", 2);
    config.optimizer.set("refresh_variance", false);
  };
  expect_table("bert, one_bit_adam, 2 workers, nccl", bert(2, one_bit_adam, true));
  expect_table("bert, zero3, 2 workers, nccl", bert(2, sharded("zero3"), true));
}

}  // namespace
}  // namespace godwit::apps
