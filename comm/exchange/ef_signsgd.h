// EF-signSGD (Karimireddy et al. 2019): scaled signs of the gradients with error feedback.
#pragma once
#include "comm/compress/wire/scaled_signs.h"
#include "comm/exchange/method.h"

namespace godwit {

struct EfSignSgdOptions {
  int64_t block_size = 4096;                  // see ErrorFeedbackOptions::scale_block
  SignScale sign_scale = SignScale::l1_mean;  // scale of a block's signs

  void describe(OptionList& list);
};

}  // namespace godwit
