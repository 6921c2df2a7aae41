// Tasks without a trainer.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/image/image_task.h"
#include "apps/text/gpt_data.h"
#include "apps/text/gpt_task.h"
#include "apps/text/lm_task.h"
#include "apps/text/text_data.h"
#include "apps/text/text_task.h"
#include "apps/train/measured_options.h"
#include "apps/train/task.h"
#include "comm/transport/local.h"
#include "tests/apps/programs/program_test.h"
#include "tests/support.h"

namespace godwit::apps {
namespace tasks_test {

// The losses of micro-batch 0 of two workers, whose batches are equal.
std::vector<double> first_losses(const std::function<std::unique_ptr<Task>(Communicator&)>& make) {
  std::vector<double> losses(2);
  run_local({2, 1}, [&](Communicator& comm) {
    const std::unique_ptr<Task> task = make(comm);
    task->model().train(true);
    task->start_epoch(0);
    losses[static_cast<size_t>(comm.rank)] = task->forward(0).loss.value().item(0);
  });
  return losses;
}

LmConfig lm_config(double dropout) {
  LmConfig config;
  config.batch = 2;
  config.data.length = 5;
  config.model.embedding = config.model.hidden = 8;
  config.model.input_dropout = config.model.hidden_dropout = config.model.output_dropout = dropout;
  return config;
}

// A text of one word.
LmData lm_data() {
  return {data::WordVocabulary({"<eos>", "a", "b"}), std::vector<int32_t>(60, 1), std::vector<int32_t>(10, 1), {}};
}

// Eight equal images of class 1.
ImageData image_data() {
  data::RawImages pixels{Shape{8, 8, 1}, 2, {}, {}};
  for (int i = 0; i < 8 * 64; ++i) pixels.pixels.push_back(static_cast<uint8_t>(i % 64 * 3));
  pixels.labels.assign(8, 1);
  const auto images = std::make_shared<data::InMemoryDataset>(
      std::move(pixels), data::TransformOptions{.mean = {0.5f}, .std = {0.25f}, .flip = false});
  return {images, images};
}

ImageConfig image_config() {
  ImageConfig config;
  config.model.name = "vit_tiny";
  config.model.layers = 1;
  config.model.dropout = {0};
  config.batch = 2;
  return config;
}

std::unique_ptr<ImageTask> image_task(const ImageConfig& config, const ImageData& data, Communicator& comm) {
  auto task = std::make_unique<ImageTask>(config, data, comm);
  const Tensor head = task->model().parameters().end()[-2].var.value();  // 0 at first
  head.range(0, head.numel() / 4).fill(1);
  return task;
}

TEST(Tasks, ImagesAreTrainedWithLabelSmoothing) {
  const ImageData data = image_data();
  ImageConfig config = image_config();
  const auto loss = [&] {
    return first_losses([&](Communicator& comm) { return image_task(config, data, comm); })[0];
  };
  const double exact = loss();
  config.data.label_smoothing = 0.5;
  EXPECT_NE(loss(), exact);
}

TEST(Tasks, WorkersHaveTheirOwnDropoutMasks) {
  const LmData words = lm_data();
  const ImageData images = image_data();
  const TempFolder folder;
  std::string text(600, 'a');
  for (size_t i = 0; i < text.size(); i += 2) text[i] = 'b';
  write_file(folder / "text", text);
  std::string sentences = "sentence\tlabel\na good town\t0\n";
  for (int i = 0; i < 40; ++i) sentences += "a good town\t1\n";
  for (const char* name : {"tsv/train.tsv", "tsv/dev.tsv"}) write_file(folder / name, sentences);

  for (const double dropout : {0.0, 0.5}) {
    const LmConfig lm = lm_config(dropout);
    ImageConfig image = image_config();
    image.model.dropout = {dropout};
    GptConfig gpt;
    gpt.data.path = folder / "text";
    gpt.data.context = 16;
    gpt.dropout = dropout;
    const std::shared_ptr<const GptData> characters = load_gpt_data(gpt);
    TextConfig bert;
    bert.task = "classify";
    bert.model.name = "bert_tiny";
    bert.model.dropout = {dropout, dropout};
    bert.data.path = folder / "tsv";
    bert.data.length = 8;
    bert.batch = 2;
    const std::shared_ptr<const TextData> reviews = load_text_data(bert, nullptr);
    const auto expect = [&](const std::string& name, const std::function<std::unique_ptr<Task>(Communicator&)>& make) {
      const std::vector<double> losses = first_losses(make);
      EXPECT_EQ(losses[0] == losses[1], dropout == 0) << name;  // without dropout: the batches are equal
    };
    expect("lm", [&](Communicator& comm) { return std::make_unique<LmTask>(lm, words, comm); });
    expect("gpt", [&](Communicator& comm) { return std::make_unique<GptTask>(gpt, *characters, comm); });
    expect("bert", [&](Communicator& comm) { return make_text_task(bert, *reviews, comm); });
    expect("image", [&](Communicator& comm) { return image_task(image, images, comm); });
  }
}

TEST(Tasks, EpochsOfALanguageModelBeginWithTheStateZero) {
  run_local({1, 1}, [](Communicator& comm) {
    const LmConfig config = lm_config(0);
    const LmData data = lm_data();
    LmTask task(config, data, comm);
    std::vector<double> epochs[2];
    for (int epoch = 0; epoch < 2; ++epoch) {
      task.start_epoch(epoch, 0);
      for (int64_t i = 0; i < task.batches(); ++i) epochs[epoch].push_back(task.forward(i).loss.value().item(0));
    }
    EXPECT_EQ(epochs[0], epochs[1]);
    EXPECT_NE(epochs[0][0], epochs[0][1]) << "the state must matter";
  });
}

TEST(Tasks, MeasurementsKeepTheStateOfALanguageModel) {
  run_local({2, 1}, [](Communicator& comm) {
    LmConfig config = lm_config(0);
    config.bucket.mib = "auto";
    const LmData data = lm_data();
    LmTask task(config, data, comm);
    for (const nn::NamedTensor& part : task.state()) part.tensor.fill(0.25);
    DataParallelOptions options{.optimizer = "sgd"};
    pick_measured_options(config, task, comm, options);
    EXPECT_EQ(config.bucket.mib == "auto", comm.rank != 0);
    for (const nn::NamedTensor& part : task.state()) EXPECT_EQ(part.tensor.item(0), 0.25) << part.name;
  });
}

}  // namespace tasks_test
}  // namespace godwit::apps
