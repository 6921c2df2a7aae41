#include "comm/exchange/shared_options.h"

namespace godwit {

void add_density(OptionList& list, double& density) {
  list.add("density", density, "fraction of a block's values to send", kAboveZeroToOne);
}

void add_block_size(OptionList& list, int64_t& block_size) {
  list.add("block_size", block_size, "values per block, within a parameter; 0: one block per parameter", kNotNegative);
}

Option& add_reply(OptionList& list, Reply& reply) {
  return list.add("reply", reply, "second phase: f32 or coded means, or none to all-gather the messages");
}

Option& add_error_feedback(OptionList& list, ErrorFeedback& feedback) {
  return list.add("error_feedback", feedback, "where compression errors are kept and added to the next step");
}

}  // namespace godwit
