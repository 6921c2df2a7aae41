// Small trainings of an image network, on a synthetic data set.
#pragma once
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/image/image_task.h"
#include "apps/train/trainer.h"
#include "comm/transport/local.h"
#include "tests/support.h"

namespace godwit::apps::small_image_run {

// 48 training and 6 test images. The arguments change the last pixel of the training set and label 3 of the test set.
inline ImageData make_data(int pixel_change = 0, int32_t label_change = 0) {
  const auto images = [](int64_t count) {
    data::RawImages set{Shape{8, 8, 1}, 2, {}, {}};
    for (int64_t i = 0; i < count * 64; ++i) set.pixels.push_back(static_cast<uint8_t>(i * 37 % 251));
    for (int64_t i = 0; i < count; ++i) set.labels.push_back(static_cast<int32_t>(i % 2));
    return set;
  };
  data::RawImages train = images(48), test = images(6);
  train.pixels.back() = static_cast<uint8_t>(train.pixels.back() + pixel_change);
  test.labels[3] -= label_change;
  const data::TransformOptions options{.mean = {0.5f}, .std = {0.25f}, .flip = true, .seed = 1};
  return {std::make_shared<data::InMemoryDataset>(std::move(train), options),
          std::make_shared<data::InMemoryDataset>(std::move(test), options)};
}

inline Evaluation run(ImageConfig& config, ImageTask&& task, Communicator& comm, Progress& progress) {
  return Trainer(image_program(), config, task, comm).run(progress);
}

// Runs `work` on every rank with a small configuration; returns the printed text.
inline std::string printed(const Topology& topology,
                    const std::function<void(ImageConfig&, Communicator&, Progress&)>& work) {
  const TempFolder folder;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::tmpfile(), std::fclose);
  Progress progress(out.get(), Progress::Style::lines);
  run_local(topology, [&](Communicator& comm) {
    ImageConfig config;
    config.optimizer = "sgdm";
    config.batch = 4;
    config.run_dir = folder / "run";
    work(config, comm, progress);
  });
  std::rewind(out.get());
  std::string text;
  for (int c; (c = std::getc(out.get())) != EOF;) text += static_cast<char>(c);
  return text;
}

// Parameters and batch-norm statistics.
inline std::vector<std::vector<float>> values_of(const nn::Module& model) {
  std::vector<std::vector<float>> all;
  for (const Parameter& p : model.parameters()) all.push_back(p.var.value().to_vector<float>());
  for (const nn::NamedTensor& buffer : model.buffers()) all.push_back(buffer.tensor.to_vector<float>());
  return all;
}

}  // namespace godwit::apps::small_image_run
