#include "comm/exchange/one_bit_sgd.h"

#include "comm/compress/compressors.h"
#include "comm/exchange/shared_options.h"

namespace godwit {
namespace {

BlockExchangeOptions blocks_of(const OneBitSgdOptions& o) {
  return block_options("one_bit_sgd", o.block_size, o.reply, o.error_feedback);
}

}  // namespace

void OneBitSgdOptions::describe(OptionList& list) {
  add_block_size(list, block_size);
  add_reply(list, reply);
  add_error_feedback(list, error_feedback);
}

void OneBitSgdOptions::check() const { blocks_of(*this).check(); }

const ExchangeMethod& one_bit_sgd_method() {
  static const ExchangeMethod method{
      .name = "one_bit_sgd",
      .help = "signs and the mean of each sign per block, both ways, with error feedback",
      .paper =
          "Seide et al., 1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training "
          "of Speech DNNs, 2014",
      .bytes = "1 bit per parameter and two float32 per block to the owners, and the same amount back",
      .defaults = OneBitSgdOptions{},
      .make = [](const AnyOptions& options, const ExchangeInputs& in) {
        return block_exchange(one_bit_compressor(), blocks_of(options.as<OneBitSgdOptions>()), in.buckets, in.comm,
                              in.seed);
      }};
  return method;
}

}  // namespace godwit
