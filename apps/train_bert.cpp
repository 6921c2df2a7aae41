// train_bert: pre-trains and fine-tunes BERT over nodes × workers, each a rank with its own model and data shard.
#include "apps/train/main.h"
#include "apps/text/text_config.h"

int main(int argc, char** argv) { return godwit::apps::run_program(godwit::apps::text_program(), argc, argv); }
