#include <bit>

#include "comm/exchanges/codecs.h"
#include "comm/wire/block_math.h"
#include "comm/wire/sign_bits.h"

namespace godwit {
namespace {

// Code: what a 1 stands for, what a 0 stands for (float32), the signs.
class OneBit : public BlockCodec {
 public:
  int64_t words(int64_t n) const override { return 2 + sign_words(n); }

  void encode(const float* x, int64_t n, const BlockDraw&, uint32_t* code) const override {
    pack_signs(Cpu{}, x, code + 2, n);
    int64_t plus = 0;
    for (int64_t w = 0; w < sign_words(n); ++w) plus += std::popcount(code[2 + w]);
    const auto mean = [](double sum, int64_t count) {
      return std::bit_cast<uint32_t>(count > 0 ? static_cast<float>(sum / static_cast<double>(count)) : 0.0f);
    };
    code[0] = mean(block::sum_of_positive(x, n), plus);
    code[1] = mean(block::sum_of_negative(x, n), n - plus);
  }

  void decode(const uint32_t* code, int64_t n, float* x) const override {
    block::choose(code + 2, std::bit_cast<float>(code[0]), std::bit_cast<float>(code[1]), n, x);
  }
};

}  // namespace

std::unique_ptr<BlockCodec> one_bit_codec() { return std::make_unique<OneBit>(); }

}  // namespace godwit
