// dense: averages every value of the gradient over all ranks, in float32 or with reduced precision.
#pragma once
#include <string>
#include <vector>

#include "comm/exchange/method.h"

namespace godwit {

struct DenseOptions {
  // Type of data on the network:
  // - bf16, f16: all-to-all of rounded parts, sums in float32 at the owners, all-gather of the means, which are rounded
  //   once. Throws if a gradient overflows float16.
  // - int8: blocks of 1024 values with a float32 scale each, in both phases.
  // - automatic: the training programs measure f32 and bf16 and choose one of them before they create the exchange.
  enum class Wire { f32, bf16, f16, int8, automatic };
  Wire wire = Wire::f32;                               // type of data on the network
  ErrorFeedback error_feedback = ErrorFeedback::none;  // for int8 only

  void describe(OptionList& list);
  void check() const;  // throws if error_feedback is set and the wire is not int8
};
inline std::vector<std::string> choices_of(DenseOptions::Wire) { return {"f32", "bf16", "f16", "int8", "auto"}; }

}  // namespace godwit
