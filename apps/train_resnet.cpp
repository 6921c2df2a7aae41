// train_resnet: trains a ResNet on images over nodes × workers, each a rank with its own model and data shard.
#include "apps/train/main.h"
#include "apps/image/image_config.h"

int main(int argc, char** argv) { return godwit::apps::run_program(godwit::apps::image_program(), argc, argv); }
