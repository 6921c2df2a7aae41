// LoCo (Xie et al. 2024, Algorithm 1): gradients in 1, 4 or 8 bits, with error feedback that is stored in 8 bits. For
// the formulas, see docs/methods/exchanges_loco.md.
#pragma once
#include <string>
#include <vector>

#include "comm/exchange/method.h"

namespace godwit {

struct LocoOptions {
  enum class Rounding { random, nearest };  // stochastic, or to nearest even

  int64_t bits = 4;                            // bits per code: 1, 4 or 8
  std::string scale = "auto";                  // s: a number such as 2^19; or auto: one s per block and step
  int64_t block_size = 1024;                   // values per scale with scale auto, and of 8-bit parameters
  double error_scale = 4;                      // s_e in units of s
  Rounding error_rounding = Rounding::random;  // rounding of the stored 8-bit error
  double error_gain_new = 0.2;                 // beta: weight of the new error; the old error has weight 1 - beta
  int64_t reset_every = 512;                   // T_c: number of steps between resets of the error; 0: no resets
  double clip_element = 0;                     // limit of |g| per value; 0: no limit
  // For a fixed scale and more than one bit: maximum fraction of saturated codes among all nonzero codes that this
  // worker has sent in the run. A step after which the fraction is larger fails.
  double saturation_limit = 0.5;

  void describe(OptionList& list);
};
inline std::vector<std::string> choices_of(LocoOptions::Rounding) { return {"random", "nearest"}; }

// LoCo for gradients, and the 8-bit parameters of ZeRO++.
struct LocoZeroppOptions : LocoOptions {};

}  // namespace godwit
