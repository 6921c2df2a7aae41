// train_resnet: trains an image classifier on nodes × workers ranks. Each rank computes gradients on its own images.
#include "apps/train/main.h"
#include "apps/image/image_config.h"

int main(int argc, char** argv) { return godwit::apps::run_program(godwit::apps::image_program(), argc, argv); }
