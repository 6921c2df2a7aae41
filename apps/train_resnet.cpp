// train_resnet: trains a ResNet on images over nodes × workers, each a rank with its own model and data shard.
#include <fcntl.h>
#include <signal.h>

#include <cstdio>
#include <exception>
#include <iostream>

#include "apps/common/command_line.h"
#include "apps/common/image_trainer.h"
#include "comm/local.h"

namespace {

using namespace godwit;

void train(const apps::TrainConfig& config) {
  const apps::ImageData images = apps::load_image_data(config.data.path);
  apps::Progress progress;
  LocalOptions options;
  options.threads_per_rank = config.threads;
  run_local(
      {config.nodes, config.workers_per_node},
      [&](Communicator& comm) { apps::ImageTrainer(config, images, comm).run(progress); }, options);
}

// A closed stdin, stdout or stderr would give its number, and then its text, to the next file that is opened.
void open_standard_streams() {
  for (int fd = 0; fd < 3; ++fd)
    if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
}

}  // namespace

// Exit codes: 0 done, 1 failed while running, 2 wrong command line or configuration.
int main(int argc, char** argv) {
  open_standard_streams();
  int failure = 2;
  try {
    const auto config = apps::parse_command_line(argc, argv, std::cout);
    check(std::cout.flush().good(), "standard output cannot be written");
    failure = 1;
    signal(SIGXFSZ, SIG_IGN);  // a file too large is then an error like any other
    if (config) train(*config);
    return 0;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::cerr << "train_resnet: " << error.what() << std::endl;
    return failure;
  }
}
