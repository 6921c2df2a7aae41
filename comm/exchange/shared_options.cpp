#include "comm/exchange/shared_options.h"

namespace godwit {

void add_density(OptionList& list, double& density) {
  list.add("density", density, "fraction of a block's values to send", kAboveZeroToOne);
}

void add_block_size(OptionList& list, int64_t& block_size) {
  list.add("block_size", block_size, "values per block, within a parameter; 0: one block per parameter", kNotNegative);
}

void add_reply(OptionList& list, Reply& reply) {
  list.add("reply", reply, "second phase: f32 or coded means, or none to all-gather the messages");
}

void add_error_feedback(OptionList& list, ErrorFeedback& feedback) {
  list.add("error_feedback", feedback, "where compression errors are kept and added to the next step");
}

void check_no_owner_feedback(const char* exchange, ErrorFeedback feedback) {
  check(!at_server(feedback), exchange, ": error_feedback '", choice_name(feedback),
        "' needs owners who code the mean; set it to worker or none");
}

}  // namespace godwit
