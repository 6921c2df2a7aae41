// train_lm: trains LSTM language models on nodes × workers ranks. Each rank has a replica of the model and separate
// streams of the text.
#include "apps/text/lm_config.h"
#include "apps/train/main.h"

int main(int argc, char** argv) { return godwit::apps::run_program(godwit::apps::lm_program(), argc, argv); }
