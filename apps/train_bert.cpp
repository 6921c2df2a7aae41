// train_bert: pre-trains and fine-tunes BERT on nodes × workers ranks. Each rank has a replica of the model and a shard
// of the text.
#include "apps/train/main.h"
#include "apps/text/text_config.h"

int main(int argc, char** argv) { return godwit::apps::run_program(godwit::apps::text_program(), argc, argv); }
