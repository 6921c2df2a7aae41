#include "comm/exchange/zeropp.h"

#include "comm/compress/int8.h"
#include "comm/exchange/shared_options.h"

namespace godwit {

void ZeroppOptions::describe(OptionList& list) { add_block_size(list, block_size); }

const ExchangeMethod& zeropp_method() {
  static const ExchangeMethod method{
      .name = "zeropp",
      .help = "sends 4-bit gradients to the owners of shards, and 8-bit parameters back",
      .paper =
          "Wang et al., ZeRO++: Extremely Efficient Collective Communication for Giant Model Training, "
          "arXiv:2306.10209, 2023",
      .bytes =
          "4 bits per parameter and one float32 per block to the owners; 1 byte per parameter and one float32 per "
          "block back",
      .defaults = ZeroppOptions{},
      .sharding = Sharding::zero2,
      .parameter_wire = ParameterWire::int8,
      .supports_zero2 = [](const AnyOptions&) { return true; },
      .zero2_shards_are_blocks = true,
      .make =
          [](const AnyOptions& options, const ExchangeInputs& in) {
            return block_exchange(int4_compressor(),
                                  {.name = "zeropp",
                                   .block_size = options.as<ZeroppOptions>().block_size,
                                   .reply = means_stay_with_owners(in.sharding) ? Reply::sharded : Reply::f32},
                                  in.buckets, in.comm, in.seed);
          }};
  return method;
}

}  // namespace godwit
