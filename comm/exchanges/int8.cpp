#include "comm/exchanges/codecs.h"
#include "comm/wire/block_math.h"
#include "comm/wire/levels.h"

namespace godwit {
namespace {

class Int8 : public BlockCodec {
 public:
  int64_t words(int64_t n) const override { return scaled_words(n, 127); }
  void encode(const float* x, int64_t n, const BlockDraw&, uint32_t* code) const override {
    encode_scaled(x, n, block::largest_magnitude(x, n), 127, nullptr, code);
  }
  void decode(const uint32_t* code, int64_t n, float* x) const override { decode_scaled(code, n, 127, x); }
};

}  // namespace

std::unique_ptr<BlockCodec> int8_codec() { return std::make_unique<Int8>(); }

}  // namespace godwit
