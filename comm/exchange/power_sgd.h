// PowerSGD (Vogels et al. 2019, algorithms 1 and 2): sends gradient matrices as products of two low-rank factors.
#pragma once
#include "comm/exchange/method.h"

namespace godwit {

// A parameter with two or more dimensions is a matrix M [first, rest]. P is the mean of M·Q, orthonormalized. Q is the
// mean of Mᵀ·P and the start of the next step. The mean gradient is P·Qᵀ. Other parameters, and matrices whose factors
// are not smaller than the matrix, are all-reduced uncompressed.
struct PowerSgdOptions {
  int64_t rank = 4;                                      // rank of the factors: number of columns of P and Q
  ErrorFeedback error_feedback = ErrorFeedback::worker;  // worker or none; e ← z − P·Qᵀ with Q of this worker

  void describe(OptionList& list);
};

}  // namespace godwit
