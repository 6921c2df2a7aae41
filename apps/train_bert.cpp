// train_bert: pre-trains and fine-tunes BERT on nodes × workers ranks. Each rank computes gradients on its own text.
#include "apps/train/main.h"
#include "apps/text/text_config.h"

int main(int argc, char** argv) { return godwit::apps::run_program(godwit::apps::text_program(), argc, argv); }
