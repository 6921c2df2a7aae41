#include "comm/exchange/topk.h"

#include "comm/compress/compressors.h"
#include "comm/exchange/shared_options.h"

namespace godwit {
namespace {

BlockExchangeOptions blocks_of(const TopKOptions& o) {
  return block_options("topk", o.block_size, o.reply, o.error_feedback);
}

}  // namespace

void TopKOptions::describe(OptionList& list) {
  add_density(list, density);
  add_block_size(list, block_size);
  add_reply(list, reply);
  add_error_feedback(list, error_feedback);
}

void TopKOptions::check() const { blocks_of(*this).check(); }

const ExchangeMethod& topk_method() {
  static const ExchangeMethod method{
      .name = "topk",
      .help = "values of largest magnitude of each parameter and their positions, with error feedback",
      .paper = "Stich et al., Sparsified SGD with Memory, arXiv:1809.07599, 2018",
      .bytes =
          "one float32 and a 16-bit position (32 bits in blocks of more than 65,536 values) per value sent, to "
          "every worker",
      .defaults = TopKOptions{},
      .make = [](const AnyOptions& options, const ExchangeInputs& in) {
        const TopKOptions& o = options.as<TopKOptions>();
        return block_exchange(topk_compressor(o.density), blocks_of(o), in.buckets, in.comm, in.seed);
      }};
  return method;
}

}  // namespace godwit
