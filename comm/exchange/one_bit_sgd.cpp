#include "comm/exchange/one_bit_sgd.h"

#include <algorithm>
#include <bit>

#include "comm/compress/wire/block_math.h"
#include "comm/compress/wire/sign_bits.h"
#include "comm/compress/wire/signed_means.h"
#include "comm/exchange/shared_options.h"
#include "engine/vector_loop.h"

namespace godwit {
namespace {

constexpr int64_t kPiece = 4096;  // values that fit the L1 cache

int64_t ones(const uint32_t* words, int64_t n) {
  int64_t count = 0;
  detail::run_wide(detail::vector_bits(), [=, &count](int64_t begin, int64_t end) GODWIT_INLINE {
    for (int64_t w = begin; w < end; ++w) count += std::popcount(words[w]);
  }, 0, n);
  return count;
}

// Code: the decoded values of a 1 and of a 0 (float32), then the sign bits.
class OneBit : public Compressor {
 public:
  int64_t payload_words(int64_t n) const override { return 2 + sign_words(n); }

  void encode(const float* x, int64_t n, const BlockRng&, uint32_t* payload) const override {
    int64_t plus = 0;
    SumsBySign sums;
    for (int64_t at = 0; at < n; at += kPiece) {
      const int64_t count = std::min(kPiece, n - at);
      uint32_t* signs = payload + 2 + at / 32;
      sums.add(x + at, count);
      pack_signs(Cpu{}, x + at, signs, count);
      plus += ones(signs, sign_words(count));
    }
    const auto mean = [](double sum, int64_t count) {
      return std::bit_cast<uint32_t>(count > 0 ? static_cast<float>(sum / static_cast<double>(count)) : 0.0f);
    };
    payload[0] = mean(sums.positive(), plus);
    payload[1] = mean(sums.negative(), n - plus);
  }

  void decode(const uint32_t* payload, int64_t n, float* x) const override {
    block::choose(payload + 2, std::bit_cast<float>(payload[0]), std::bit_cast<float>(payload[1]), n, x);
  }

  CodeFormat format() const override { return OneBitFormat{}; }
};

BlockExchangeOptions blocks_of(const OneBitSgdOptions& o) {
  return block_options("one_bit_sgd", o.block_size, o.reply, o.error_feedback);
}

}  // namespace

std::unique_ptr<Compressor> one_bit_compressor() { return std::make_unique<OneBit>(); }

void OneBitSgdOptions::describe(OptionList& list) {
  add_block_size(list, block_size);
  add_reply(list, reply);
  add_error_feedback(list, error_feedback);
}

void OneBitSgdOptions::check() const { blocks_of(*this).check(); }

const ExchangeMethod& one_bit_sgd_method() {
  static const ExchangeMethod method{
      .name = "one_bit_sgd",
      .help = "signs, and one mean per sign and block, in both directions, with error feedback",
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
