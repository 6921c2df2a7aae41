// train_gpt: trains GPT-2, LLaMA or a mixture of experts on nodes × workers ranks. Each rank computes gradients on its
// own blocks of text.
#include "apps/text/gpt_config.h"
#include "apps/train/main.h"

int main(int argc, char** argv) { return godwit::apps::run_program(godwit::apps::gpt_program(), argc, argv); }
