// train_resnet: trains a ResNet on images over nodes × workers, each a rank with its own model and data shard.
#include <cstdio>
#include <exception>
#include <iostream>

#include "apps/common/command_line.h"
#include "apps/common/image_trainer.h"
#include "comm/local.h"
#include "data/image_dataset.h"

namespace {

using namespace godwit;

void train(const apps::TrainConfig& config) {
  const std::string folder = config.data.path.empty() ? data::default_data_folder() : config.data.path;
  apps::ImageData images{
      data::load_idx_folder(folder, data::Split::train), data::load_idx_folder(folder, data::Split::test), {}};
  images.stats = data::channel_stats(images.train);
  apps::Progress progress;
  LocalOptions options;
  options.threads_per_rank = config.threads;
  run_local(
      {config.nodes, config.workers_per_node},
      [&](Communicator& comm) { apps::ImageTrainer(config, images, comm).run(progress); }, options);
}

}  // namespace

// Exit codes: 0 done, 1 failed while running, 2 wrong command line or configuration.
int main(int argc, char** argv) {
  int failure = 2;
  try {
    const auto config = apps::parse_command_line(argc, argv, std::cout);
    failure = 1;
    if (config) train(*config);
    return 0;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::cerr << "train_resnet: " << error.what() << std::endl;
    return failure;
  }
}
