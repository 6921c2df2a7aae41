// Options shared by several exchanges.
#pragma once
#include <string>

#include "comm/exchange/block_exchange.h"

namespace godwit {

// Error message if an exchange is created with wire auto.
inline constexpr const char* kWireNotPicked =
    "exchange: wire is auto, which only the training programs replace by a measured choice; set f32, bf16 or f16";

void add_density(OptionList& list, double& density);         // fraction of a block's values to send, in (0, 1]
void add_block_size(OptionList& list, int64_t& block_size);  // values per block; 0: one block per parameter
Option& add_reply(OptionList& list, Reply& reply);           // how ranks receive the means
Option& add_error_feedback(OptionList& list, ErrorFeedback& feedback);  // where compression errors are kept

// The name of an enumerator: choice_name(Reply::coded) is "coded".
template <class E>
std::string choice_name(E value) {
  return choices_of(value).at(static_cast<size_t>(value));
}

}  // namespace godwit
