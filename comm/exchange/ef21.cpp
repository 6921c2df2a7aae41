#include "comm/exchange/ef21.h"

#include "comm/exchange/one_bit_sgd.h"
#include "comm/exchange/shared_options.h"
#include "comm/exchange/topk.h"
#include "engine/check.h"

namespace godwit {
namespace {

BlockExchangeOptions blocks_of(const Ef21Options& o) {
  return {.name = "ef21", .block_size = o.block_size, .reply = o.reply, .worker = Feedback::ef21};
}

}  // namespace

void Ef21Options::describe(OptionList& list) {
  list.add("compressor", compressor,
           "compressor of the changes: topk, which reads density, or one_bit as in one_bit_sgd");
  add_density(list, density);
  add_block_size(list, block_size);
  // With a coded reply, the mean of the estimates on every rank would not be exact.
  list.add("reply", reply, "second phase: f32 means, or none to all-gather the messages").with_choices({"f32", "none"});
}

const ExchangeMethod& ef21_method() {
  static const ExchangeMethod method{
      .name = "ef21",
      .help = "compressed changes of an estimate of each worker's gradient",
      .paper =
          "Richtárik et al., EF21: A New, Simpler, Theoretically Better, and Practically Faster Error Feedback, "
          "arXiv:2106.05203, 2021",
      .bytes =
          "one message of the compressor to every worker, as in topk, or 1 bit per parameter and two float32 per "
          "block with one_bit",
      .defaults = Ef21Options{},
      .make = [](const AnyOptions& options, const ExchangeInputs& in) {
        const Ef21Options& o = options.as<Ef21Options>();
        const bool one_bit = o.compressor == Ef21Options::Compressor::one_bit;
        check(!one_bit || o.density == Ef21Options{}.density,
              "ef21: compressor one_bit does not read density, which is ", o.density,
              "; leave density out, or use compressor topk");
        return block_exchange(one_bit ? one_bit_compressor() : topk_compressor(o.density), blocks_of(o), in.buckets,
                              in.comm, in.seed);
      }};
  return method;
}

}  // namespace godwit
