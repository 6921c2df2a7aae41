// Calls of CUDA in a step: launches, copies, memsets and waits of the host, through the Trainer.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "apps/image/image_config.h"
#include "apps/text/text_task.h"
#include "apps/train/trainer.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "comm/single_group.h"
#include "comm/transport/local.h"
#include "models/resnet.h"
#include "tests/apps/programs/program_test.h"
#include "tests/emulated_cuda/cuda_runtime.h"
#include "tests/optim/support.h"

namespace godwit::apps {
namespace cuda_step_counts_test {

// Copies of one direction.
struct Copies {
  int64_t count = 0, bytes = 0;
  bool operator==(const Copies&) const = default;
  Copies operator-(const Copies& b) const { return {count - b.count, bytes - b.bytes}; }
};
std::ostream& operator<<(std::ostream& out, const Copies& c) { return out << "{" << c.count << ", " << c.bytes << "}"; }

// Counts of all workers together.
struct StepCounts {
  int64_t launches = 0, memsets = 0;
  Copies to_gpu = {}, to_host = {}, on_gpu = {};
  int64_t waits = 0;        // of the host for the GPU
  int64_t allocations = 0;  // the host may wait for these too

  static StepCounts now() {
    const auto& all = emulated::counts;
    const auto copies = [&](cudaMemcpyKind kind) { return Copies{all.copies[kind], all.copied_bytes[kind]}; };
    return {all.launches,
            all.memsets,
            copies(cudaMemcpyHostToDevice),
            copies(cudaMemcpyDeviceToHost),
            copies(cudaMemcpyDeviceToDevice),
            all.synchronizations,
            all.allocations};
  }
  bool operator==(const StepCounts&) const = default;
  StepCounts operator-(const StepCounts& b) const {
    return {launches - b.launches, memsets - b.memsets, to_gpu - b.to_gpu,          to_host - b.to_host,
            on_gpu - b.on_gpu,     waits - b.waits,     allocations - b.allocations};
  }
};
std::ostream& operator<<(std::ostream& out, const StepCounts& c) {
  out << "{" << c.launches << ", " << c.memsets << ", " << c.to_gpu << ", " << c.to_host << ", " << c.on_gpu << ", "
      << c.waits;
  if (c.allocations > 0) out << ", " << c.allocations;
  return out << "}";
}

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
  std::vector<std::string> figures() const override { return {"test_loss"}; }
  Evaluation evaluate(const ReadParameters&, const CheckStop&) override { return {.loss = 0, .metrics = {}, .text = ""}; }
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

// A ResNet on fixed square images.
class ResNetTask : public Task {
 public:
  ResNetTask(const ImageConfig& config, ResNetConfig net, int64_t side)
      : images_(Tensor::full({config.batch, side, side, 3}, 0.5)), labels_({config.batch}, DType::i32, kCpu) {
    net.dtype = config.dtype == "bf16" ? DType::bf16 : DType::f32;
    net_ = make_resnet(net);
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
  Evaluation evaluate(const ReadParameters&, const CheckStop&) override { return {}; }
  void save(const std::string&, const std::string&) override {}

 private:
  Tensor images_, labels_;
  std::unique_ptr<ResNet> net_;
};

constexpr int kFirst = 4, kSteps = 2;  // the steps that are measured; with CUDA graphs, the first two are not replays

class CudaStepCounts : public ::testing::Test {
 protected:
  std::filesystem::path folder() const { return scratch_.str(); }

  template <class Config, class MakeTask>
  std::vector<StepCounts> counts_of(const Program& program, Config config, const Topology& topology,
                                   const MakeTask& make_task, bool nccl) {
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
    run_local(topology, body, {.threads_per_rank = 1, .placement = {"cuda", /*share_gpu=*/!nccl, true, true}});
    std::vector<StepCounts> counts;
    for (size_t i = 0; i < kSteps; ++i) counts.push_back(before.at(kFirst + i) - before.at(kFirst + i - 1));
    return counts;
  }

  // A ResNet with two stages of two bottleneck blocks, on images of 4 × 4 pixels; with `whole`, ResNet-50 with an
  // eighth of its channels and classes, in as many buckets, on images of 32 × 32 pixels.
  template <class Change>
  std::vector<StepCounts> resnet(int nodes, const Change& change, bool nccl = false, bool whole = false) {
    ImageConfig config;
    config.optimizer = "birder";
    config.dtype = "bf16";
    config.batch = 2;
    config.bucket.first_mib = 1.0 / 64;
    ResNetConfig net{.blocks = {2, 2}, .bottleneck = true, .width = 16, .small_stem = true, .num_classes = 10};
    if (whole) {
      net = resnet_config("resnet50");
      net.width = 8, net.num_classes = 125;
      config.bucket.mib = std::to_string(25.0 / 64);
    }
    change(config);
    const auto make = [&](const ImageConfig& own, Communicator&) {
      return std::make_unique<ResNetTask>(own, net, whole ? 32 : 4);
    };
    return counts_of(image_program(), config, {nodes, 1}, make, nccl);
  }

  // A BERT with two layers of 64 values and one head; with `whole`, BERT-Base with a twelfth of its width, heads and
  // vocabulary, in as many buckets.
  template <class Change>
  std::vector<StepCounts> bert(const Topology& topology, const Change& change, bool nccl = false, bool whole = false) {
    std::string texts = "sentence\tlabel\n";  // equal texts, so that all steps copy equally many bytes
    for (int i = 0; i < 64; ++i) texts += "anna in oslo was good\t" + std::to_string(i % 2) + "\n";
    write_file(folder() / "tsv" / "train.tsv", texts);
    write_file(folder() / "tsv" / "dev.tsv", texts);
    TextConfig config;
    config.task = "classify";
    config.optimizer = "adamw";
    config.optimizer.set("decay_norm_and_bias", false);
    config.data.path = folder() / "tsv";
    config.data.length = 16;
    config.model.name = "bert_tiny";
    config.dtype = "bf16";
    config.batch = 2;
    config.bucket.first_mib = 1.0 / 144;
    if (whole) config.bucket.mib = std::to_string(25.0 / 144);
    change(config);
    const auto data = std::const_pointer_cast<TextData>(load_text_data(config, nullptr));
    BertConfig& model = data->model;
    model.hidden_size = 64, model.intermediate_size = 256, model.num_attention_heads = 1;
    if (whole) model.num_hidden_layers = 12, model.vocab_size = 2543;
    const auto make = [&](const TextConfig& own, Communicator& comm) { return make_text_task(own, *data, comm); };
    return counts_of(text_program(), config, topology, make, nccl);
  }

 private:
  TempFolder scratch_;
};

// Counts per step of all workers together: launches, memsets, copies to the GPU, to the host and on the GPU with
// their bytes, and waits. After a review of the change, replace a line by the one that the failed test prints.
struct Expected {
  const char* name;
  int workers;
  StepCounts step;
};
constexpr Expected kTable[] = {
    {"resnet50", 1, {574, 6, {2, 16}, {8, 60}, {1, 4704}, 1}},
    {"bert_base", 1, {469, 23, {11, 680}, {21, 164}, {25, 296960}, 1}},
    {"resnet", 1, {172, 2, {2, 16}, {4, 28}, {4, 17088}, 1}},
    {"resnet, 2 workers", 2, {348, 4, {4, 32}, {8, 56}, {8, 34176}, 2}},
    {"resnet, adamw", 1, {172, 2, {2, 16}, {4, 28}, {4, 17088}, 1}},
    {"resnet, sgdm qsgd, 2 workers", 2, {352, 16, {4, 32}, {12, 72}, {20, 672696}, 2}},
    {"resnet, graph", 1, {6, 2, {2, 16}, {4, 28}, {0, 0}, 1}},
    {"resnet, skip", 1, {172, 2, {2, 16}, {4, 28}, {34, 23360}, 1}},
    {"bert, lamb", 1, {105, 6, {13, 1992}, {4, 28}, {7, 51200}, 1}},
    {"bert, softsignsgd", 1, {105, 6, {11, 680}, {4, 28}, {7, 51200}, 1}},
    {"bert, adafactor", 1, {105, 6, {11, 680}, {4, 28}, {7, 51200}, 1}},
    {"bert, one_bit_adam, 2 workers", 2, {226, 28, {22, 1360}, {16, 120}, {14, 102400}, 2}},
    {"bert, one_bit_lamb, 2 workers", 2, {226, 28, {26, 3984}, {16, 120}, {14, 102400}, 2}},
    {"bert, zero_one_adam, 2 workers", 2, {226, 28, {22, 1360}, {16, 120}, {14, 102400}, 2}},
    {"bert, zero_one_adam, local, 2 workers", 2, {214, 12, {22, 1360}, {8, 56}, {14, 102400}, 2}},
    {"bert, birder, clip", 1, {113, 6, {13, 1992}, {5, 44}, {10, 51544}, 1}},
    {"bert, birder, clip, 2 workers", 2, {230, 12, {26, 3984}, {10, 120}, {18, 103056}, 2}},
    {"bert", 1, {105, 6, {11, 680}, {4, 28}, {7, 51200}, 1}},
    {"bert, birder, 2 workers", 2, {214, 12, {22, 1360}, {8, 56}, {14, 102400}, 2}},
    {"bert, loco, 2 workers", 2, {230, 24, {22, 1360}, {12, 152}, {18, 103680}, 2}},
    {"bert, hierarchical, 2 x 2 workers", 4, {444, 24, {76, 3168}, {16, 112}, {44, 2435072}, 4}},
    {"bert, zero2, 2 workers", 2, {286, 38, {22, 1360}, {18, 136}, {50, 1350672}, 2}},
    {"bert, zero3, 2 workers", 2, {310, 40, {22, 1360}, {18, 136}, {50, 1350672}, 2}},
    {"bert, zero3 in int8, 2 workers", 2, {366, 106, {22, 1360}, {46, 248}, {70, 2186784}, 2}},
    {"bert, clip", 1, {110, 4, {13, 1992}, {3, 340}, {9, 51528}, 1}},
    {"bert, every step is logged", 1, {105, 6, {11, 680}, {4, 28}, {7, 51200}, 1}},
    {"resnet, 2 workers, nccl", 2, {348, 4, {4, 32}, {8, 56}, {8, 34176}, 2}},
    {"bert, 2 workers, nccl", 2, {210, 12, {22, 1360}, {8, 56}, {14, 102400}, 2}},
    {"bert, loco, 2 workers, nccl", 2, {230, 24, {22, 1360}, {12, 152}, {18, 103680}, 2}},
    {"bert, one_bit_adam, 2 workers, nccl", 2, {226, 28, {22, 1360}, {16, 120}, {14, 102400}, 2}},
    {"bert, zero3, 2 workers, nccl", 2, {310, 40, {22, 1360}, {18, 136}, {50, 1350672}, 2}},
};

void expect_table(const std::string& name, const std::vector<StepCounts>& counts) {
  const Expected* line =
      std::find_if(std::begin(kTable), std::end(kTable), [&](const Expected& e) { return e.name == name; });
  const bool known = line != std::end(kTable);
  for (const StepCounts& step : counts)
    EXPECT_TRUE(known && step == line->step)
        << "{\"" << name << "\", " << (known ? line->workers : 0) << ", " << step << "},";
}

// The host of a worker waits for its GPU at most once a step.
TEST(CudaStepCountsTable, AWorkerWaitsAtMostOncePerStep) {
  for (const Expected& line : kTable) EXPECT_LE(line.step.waits, line.workers) << line.name;
}

// The whole networks. docs/gpu_execution.md has their launches.
TEST_F(CudaStepCounts, WholeNetworks) {
  expect_table("resnet50", resnet(1, [](ImageConfig&) {}, false, /*whole=*/true));
  expect_table("bert_base", bert({1, 1}, [](TextConfig&) {}, false, /*whole=*/true));
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
    config.bucket.mib = "0.125", config.bucket.first_mib = 0.125;
  };
}

// Configures an optimizer. Methods with compression compress from step 3 on.
auto optimizer(const std::string& name) {
  return [name](TextConfig& config) {
    config.optimizer = name == "zero_one_adam, local" ? "zero_one_adam" : name;
    if (name != "adafactor") config.optimizer.set("decay_norm_and_bias", false);
    godwit::test::set_if_known(config.optimizer, "refresh_variance", false);
    if (name.starts_with("one_bit")) config.optimizer.set("warmup_steps", 2);
    if (name.starts_with("zero_one")) config.optimizer.set("warmup_steps", 1).set("freeze_step", 1);
    if (name == "zero_one_adam") config.optimizer.set("max_interval", 1);
    if (name == "zero_one_adam, local") config.optimizer.set("intervals", "fixed");
  };
}

TEST_F(CudaStepCounts, Optimizers) {
  for (const std::string name : {"lamb", "softsignsgd", "adafactor"})
    expect_table("bert, " + name, bert({1, 1}, optimizer(name)));
  for (const std::string name : {"one_bit_adam", "one_bit_lamb", "zero_one_adam", "zero_one_adam, local"})
    expect_table("bert, " + name + ", 2 workers", bert({2, 1}, optimizer(name)));
  for (const int workers : {1, 2})
    expect_table(workers == 1 ? "bert, birder, clip" : "bert, birder, clip, 2 workers",
                 bert({workers, 1}, [](TextConfig& config) {
                   optimizer("birder")(config);
                   config.clip.norm = 0.1;
                 }));
}

// Launches of the update of one bucket in the first step, and in step 4, after the warm-up of 1-bit methods.
std::vector<int64_t> update_launches(const std::string& name, int parameters) {
  const ContextGuard guard(context_on(cuda_device(0)));
  std::vector<Parameter> all;
  for (int i = 0; i < parameters; ++i)
    all.push_back({"p" + std::to_string(i), Var(Tensor::zeros(i % 3 == 0 ? Shape{6, 8} : Shape{8}), true), i % 3 == 0});
  Buckets buckets(all, {});
  const auto group = std::make_shared<SingleGroup>();
  Communicator alone{{1, 1}, 0, group, group, group, group, std::make_shared<CommStats>()};
  constexpr int64_t kEnd = 4;
  OptimizerConfig config = name;
  godwit::test::set_if_known(config, "decay_norm_and_bias", false);
  godwit::test::set_if_known(config, "warmup_steps", 2);
  config = for_run(config, Schedule({}, 0.1, kEnd, kEnd), kEnd);
  const auto optimizer = config.method().make(config.options(), {buckets, alone});
  std::vector<int64_t> launches;
  for (int64_t step = 1; step <= kEnd; ++step) {
    if (config.method().communicates_itself) optimizer->exchange(buckets[0], alone, {step, 0.1});
    const int64_t before = emulated::counts.launches;
    optimizer->apply(buckets[0], {step, 0.1});
    if (step == 1 || step == kEnd) launches.push_back(emulated::counts.launches - before);
  }
  return launches;
}

// docs/gpu_execution.md has these numbers.
TEST(CudaUpdateLaunches, DoNotDependOnTheNumberOfParameters) {
  using ::testing::Each;
  for (const OptimizerMethod* const method : methods<OptimizerMethod>())
    for (const int parameters : {3, 148})
      EXPECT_THAT(update_launches(method->name, parameters), Each(1)) << method->name << ", " << parameters;
  // Weight decay begins or ends 533 times.
  EXPECT_THAT(update_launches("adamw", 801), Each(3));
  EXPECT_THAT(update_launches("lamb", 801), Each(1));
}

TEST_F(CudaStepCounts, Bert) {
  expect_table("bert", bert({1, 1}, [](TextConfig&) {}));
  expect_table("bert, birder, 2 workers", bert({2, 1}, optimizer("birder")));
  expect_table("bert, loco, 2 workers", bert({2, 1}, [](TextConfig& config) { config.exchange = "loco"; }));
  expect_table("bert, hierarchical, 2 x 2 workers",
               bert({2, 2}, [](TextConfig& config) { config.exchange = "hierarchical"; }));
  for (const std::string sharding : {"zero2", "zero3", "zero3 in int8"})
    expect_table("bert, " + sharding + ", 2 workers", bert({2, 1}, sharded(sharding)));
  expect_table("bert, clip", bert({1, 1}, [](TextConfig& config) { config.clip.norm = 0.1; }));
  expect_table("bert, every step is logged", bert({1, 1}, [](TextConfig& config) { config.log_every = 1; }));
}

// Each worker has its own GPU: the host waits for no collective.
TEST_F(CudaStepCounts, Nccl) {
  expect_table("resnet, 2 workers, nccl", resnet(2, [](ImageConfig&) {}, true));
  expect_table("bert, 2 workers, nccl", bert({2, 1}, [](TextConfig&) {}, true));
  expect_table("bert, loco, 2 workers, nccl", bert({2, 1}, [](TextConfig& config) { config.exchange = "loco"; }, true));
  expect_table("bert, one_bit_adam, 2 workers, nccl", bert({2, 1}, optimizer("one_bit_adam"), true));
  expect_table("bert, zero3, 2 workers, nccl", bert({2, 1}, sharded("zero3"), true));
}

}  // namespace cuda_step_counts_test
}  // namespace godwit::apps
