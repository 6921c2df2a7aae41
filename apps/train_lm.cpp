// train_lm: trains LSTM language models on nodes × workers ranks, each with a model replica and its own streams of the
// text.
#include "apps/train/main.h"
#include "apps/text/language_config.h"

int main(int argc, char** argv) { return godwit::apps::run_program(godwit::apps::language_program(), argc, argv); }
