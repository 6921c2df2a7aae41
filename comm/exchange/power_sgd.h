// PowerSGD (Vogels et al. 2019, algorithms 1 and 2): gradient matrices as products of two low-rank factors.
#pragma once
#include "comm/exchange/method.h"

namespace godwit {

// Parameters with two or more dimensions are matrices M [first, rest]: P = mean of M·Q, orthonormalized; Q = mean of
// Mᵀ·P, the start of the next step; the mean gradient is P·Qᵀ. Other parameters, and matrices whose factors are not
// smaller than the matrix, are all-reduced uncompressed.
struct PowerSgdOptions {
  int64_t rank = 4;                                      // of the factors: columns of P and Q
  ErrorFeedback error_feedback = ErrorFeedback::worker;  // worker or none; e ← z − P·Qᵀ with the worker's own Q

  void describe(OptionList& list);
};

}  // namespace godwit
