// train_lm: trains LSTM language models on nodes × workers ranks. Each rank computes gradients on its own streams of
// text.
#include "apps/train/main.h"
#include "apps/text/language_config.h"

int main(int argc, char** argv) { return godwit::apps::run_program(godwit::apps::language_program(), argc, argv); }
