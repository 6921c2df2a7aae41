// The programs on a GPU, run from the command line. Workers that share a GPU must train like workers on the CPU.
#include <cmath>

#include "engine/device.h"
#include "tests/apps/small_data.h"

namespace godwit {
namespace cuda_programs_test {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

class CudaPrograms : public ProgramTest {
 protected:
  using ProgramTest::ProgramTest;
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << why_no_cuda();
  }

  std::vector<json> lines_of(const std::string& flags, std::string* printed = nullptr) {
    fs::remove_all(run_dir());
    const Outcome outcome = train(flags + " --set log_every=1 --check-replicas 2 --max-steps 4");
    EXPECT_EQ(outcome.exit_code, 0) << flags << ": " << outcome.err;
    EXPECT_EQ(outcome.err, "") << flags;
    if (printed) *printed = outcome.out;
    return metrics();
  }

  // Compares losses, evaluations and gradient norms with the CPU; `tolerance` is relative, but absolute below 1.
  void expect_as_on_the_cpu(const std::string& flags, double tolerance) {
    SCOPED_TRACE(flags);
    std::string printed;
    const std::vector<json> here = lines_of(flags),
                            there = lines_of(flags + " --device cuda --set share_gpu=true", &printed);
    ASSERT_EQ(there.size(), here.size());
    ASSERT_EQ(here.size(), 5u) << "four steps and an evaluation";
    for (size_t i = 0; i < here.size(); ++i)
      for (const char* key : {"loss", "test_loss", "val_loss", "grad_norm"})
        if (here[i].contains(key)) {
          const double expected = here[i][key], found = there[i][key];
          EXPECT_NEAR(found, expected, tolerance * std::max(1.0, std::abs(expected))) << key << " of line " << i;
        }
    EXPECT_EQ(there[3]["bytes_inter"], here[3]["bytes_inter"]);
    EXPECT_THAT(printed, HasSubstr(", of its GPU "));
  }

  // Compares a run with CUDA graphs with a run without them. `evaluation`: key of its loss.
  void expect_same_bits_with_graphs(
      const std::string& flags, const char* evaluation,
      const std::string& replayed = "CUDA graphs: 2 of 4 micro-batches were replayed from 1 captured graphs") {
    std::string printed;
    const std::vector<json> expected = lines_of(flags), found = lines_of(flags + " --set cuda_graph=true", &printed);
    ASSERT_EQ(found.size(), 5u);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(found[i]["loss"], expected[i]["loss"]) << i;
    EXPECT_EQ(found[4][evaluation], expected[4][evaluation]);
    EXPECT_THAT(printed, HasSubstr(replayed));
  }
};

class CudaTrainResnet : public CudaPrograms {
 protected:
  CudaTrainResnet() : CudaPrograms("train_resnet", "--data data --run-dir run --threads 1") {}
  void SetUp() override {
    CudaPrograms::SetUp();
    fs::create_directories(folder_ / "data");
    write_images(folder_ / "data", "train", 128, 128);
    write_images(folder_ / "data", "t10k", 21, 21);
  }
};

class CudaTrainBert : public CudaPrograms {
 protected:
  CudaTrainBert() : CudaPrograms("train_bert", "--run-dir run --model bert_tiny --length 32 --threads 1") {}
  void SetUp() override {
    CudaPrograms::SetUp();
    write_file(folder_ / "text.txt", story(20));
    write_file(folder_ / "squad" / "train-v1.1.json", squad(64).dump());
    write_file(folder_ / "squad" / "dev-v1.1.json", squad(12).dump());
    write_file(folder_ / "tsv" / "train.tsv", reviews(160));
    write_file(folder_ / "tsv" / "dev.tsv", reviews(31));
  }
};

// Gradients are summed in another order. Batch norm over few pixels amplifies the differences, and a random bit of
// Birder changes if its random number is very close to the threshold.
TEST_F(CudaTrainResnet, WorkersThatShareAGpuTrainLikeTheCpu) {
  expect_as_on_the_cpu("--optimizer birder --nodes 2 --workers-per-node 2 --batch 8", 2e-3);
  expect_as_on_the_cpu("--optimizer sgdm --nodes 2 --batch 4 --accumulation 2 --set clip.norm=1 --set ema.decay=0.9",
                       2e-3);
  expect_as_on_the_cpu("--optimizer one_bit_adam --nodes 4 --batch 4 --set model.sync_bn=true", 2e-3);
}

// bfloat16 rounds an activation by 2⁻⁹, in about forty consecutive layers.
TEST_F(CudaTrainResnet, TrainsInBfloat16) {
  expect_as_on_the_cpu("--optimizer sgdm --nodes 2 --batch 8 --dtype bf16 --set exchange.wire=bf16", 0.1);
}

TEST_F(CudaTrainBert, WorkersThatShareAGpuTrainLikeTheCpu) {
  expect_as_on_the_cpu("--task pretrain --data text.txt --set data.hold_out=8 --optimizer birder --nodes 2 --batch 2",
                       2e-3);
  expect_as_on_the_cpu("--task classify --data tsv --optimizer adamw --nodes 2 --batch 4 --accumulation 2", 2e-3);
  expect_as_on_the_cpu("--task classify --data tsv --optimizer zero_one_adam --nodes 2 --batch 2", 2e-3);
}

TEST_F(CudaTrainBert, TrainsQuestionAnsweringInBfloat16) {
  const std::string flags =
      "--task squad --data squad --set data.max_question=10 --set data.doc_stride=8 --nodes 2 --batch 4 ";
  const std::vector<json> here = lines_of(flags),
                          there = lines_of(flags + "--dtype bf16 --device cuda --set share_gpu=true");
  ASSERT_EQ(there.size(), 5u);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(there[i]["loss"].get<double>(), here[i]["loss"].get<double>(), 0.1);
  EXPECT_TRUE(there[4].contains("f1"));
  EXPECT_TRUE(fs::exists(run_dir() / "model/model.safetensors"));
}

class CudaTrainLm : public CudaPrograms {
 protected:
  CudaTrainLm()
      : CudaPrograms("train_lm",
                     "--data one.txt --set data.hold_out=6 --set model.embedding=16 --set model.hidden=24 "
                     "--set model.hidden_dropout=0.2 --set model.weight_dropout=0.3 --length 7 --batch 4 "
                     "--run-dir run --threads 1") {}
  void SetUp() override {
    CudaPrograms::SetUp();
    write_file(folder_ / "one.txt", story(60));
  }
};

TEST_F(CudaTrainLm, WorkersThatShareAGpuTrainLikeTheCpu) {
  expect_as_on_the_cpu("--optimizer birder --nodes 4 --batch 2", 2e-3);
  expect_as_on_the_cpu("--optimizer sgd --lr 1 --nodes 2 --accumulation 2 --set model.tied=true", 2e-3);
  expect_as_on_the_cpu("--optimizer adamw --nodes 2 --dtype bf16", 0.1);
}

// The state between windows and the dropout masks change in every replay.
TEST_F(CudaTrainLm, CudaGraphsGiveTheSameBits) {
  expect_same_bits_with_graphs("--nodes 2 --optimizer sgd --lr 2 --device cuda --set share_gpu=true", "val_loss");
}

class CudaTrainGpt : public CudaPrograms {
 protected:
  CudaTrainGpt()
      : CudaPrograms("train_gpt",
                     "--data text.txt --set data.valid=valid.txt --set model.n_layer=2 --set model.n_head=2 "
                     "--set model.n_embd=16 --set model.dropout=0.1 --set generate.tokens=5 --context 16 --batch 4 "
                     "--run-dir run --threads 1") {}
  void SetUp() override {
    CudaPrograms::SetUp();
    write_file(folder_ / "text.txt", story(10));
    write_file(folder_ / "valid.txt", story(1));
  }
};

TEST_F(CudaTrainGpt, WorkersThatShareAGpuTrainLikeTheCpu) {
  expect_as_on_the_cpu("--optimizer adamw --nodes 2", 2e-3);
  expect_as_on_the_cpu("--optimizer adamw --nodes 2 --dtype bf16", 0.1);
}

TEST_F(CudaTrainGpt, CudaGraphsGiveTheSameBits) {
  expect_same_bits_with_graphs("--optimizer adamw --device cuda", "val_loss");
}

TEST_F(CudaTrainResnet, CudaGraphsGiveTheSameBits) {
  expect_same_bits_with_graphs("--nodes 2 --batch 4 --device cuda --set share_gpu=true", "test_loss");
}

TEST_F(CudaTrainResnet, RefusesCudaGraphsIfCaptureIsImpossible) {
  expect_refused("--set cuda_graph=true", {"cuda_graph: passes are captured on a GPU", "--device cuda"});
  expect_refused("--device cuda --set cuda_graph=true --set model.sync_bn=true", {"cuda_graph: with model.sync_bn "});
  expect_refused("--optimizer adamw --device cuda --set cuda_graph=true --set exchange.sharding=zero2",
                 {"exchange.sharding zero2", "use zero1"});
}

TEST_F(CudaTrainBert, CudaGraphsGiveTheSameBits) {
  expect_same_bits_with_graphs("--task classify --data tsv --optimizer adamw --batch 4 --device cuda", "test_loss",
                               " of 4 micro-batches were replayed from ");
}

TEST_F(CudaTrainResnet, ReportsThatThereAreTooFewGpus) {
  expect_refused("--device cuda --nodes 40", {"40 workers on this machine", "share_gpu=true"});
  expect_refused("--device cuda:99", {"numbered from 0"});
}

}  // namespace cuda_programs_test
}  // namespace godwit
