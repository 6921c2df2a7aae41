// dense: every value of the gradient, in float32 or with reduced precision, in one mean over the world.
#pragma once
#include <string>
#include <vector>

#include "comm/exchange/method.h"

namespace godwit {

struct DenseOptions {
  // Type of data on the network. bf16, f16: an all-to-all of rounded parts, which their owners add in float32, then an
  // all-gather of the means, rounded once. Throws if a gradient overflows float16. int8: blocks of 1024 values with a
  // float32 scale each, in both phases. automatic: the training programs measure f32 and bf16 and pick one of them
  // before they make the exchange.
  enum class Wire { f32, bf16, f16, int8, automatic };
  Wire wire = Wire::f32;                               // type of data on the network
  ErrorFeedback error_feedback = ErrorFeedback::none;  // int8 only

  void describe(OptionList& list);
  void check() const;  // throws if another wire than int8 has error feedback
};
inline std::vector<std::string> choices_of(DenseOptions::Wire) { return {"f32", "bf16", "f16", "int8", "auto"}; }

}  // namespace godwit
