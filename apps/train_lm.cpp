// train_lm: trains LSTM language models on nodes × workers ranks. Each rank computes gradients on its own streams of
// text.
#include "apps/text/lm_config.h"
#include "apps/train/main.h"

int main(int argc, char** argv) { return godwit::apps::run_program(godwit::apps::lm_program(), argc, argv); }
