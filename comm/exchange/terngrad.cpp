#include "comm/exchange/terngrad.h"

#include "comm/compress/compressors.h"
#include "comm/exchange/shared_options.h"

namespace godwit {

void TernGradOptions::describe(OptionList& list) {
  add_block_size(list, block_size);
  add_reply(list, reply);
  list.add("clip_sigma", clip_sigma, "limit of a value, in root mean squares of its block; 0: no limit", kNotNegative);
}

const ExchangeMethod& terngrad_method() {
  static const ExchangeMethod method{
      .name = "terngrad",
      .help = "-1, 0 or 1 times each block's largest magnitude, chosen stochastically",
      .paper =
          "Wen et al., TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep Learning, "
          "arXiv:1705.07878, 2017",
      .bytes = "2 bits per parameter and one float32 per block to the owners; one float32 per parameter back",
      .defaults = TernGradOptions{},
      .make = [](const AnyOptions& options, const ExchangeInputs& in) {
        const TernGradOptions& o = options.as<TernGradOptions>();
        return block_exchange(terngrad_compressor(o.clip_sigma),
                              {.name = "terngrad", .block_size = o.block_size, .reply = o.reply}, in.buckets, in.comm,
                              in.seed);
      }};
  return method;
}

}  // namespace godwit
