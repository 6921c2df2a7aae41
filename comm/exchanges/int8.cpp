#include "comm/exchanges/codecs.h"
#include "comm/wire/block_math.h"
#include "comm/wire/levels.h"

namespace godwit {
namespace {

class Nearest : public BlockCodec {
 public:
  explicit Nearest(int levels) : levels_(levels) {}
  int64_t words(int64_t n) const override { return scaled_words(n, levels_); }
  void encode(const float* x, int64_t n, const BlockDraw&, uint32_t* code) const override {
    encode_scaled(x, n, block::largest_magnitude(x, n), levels_, nullptr, code);
  }
  void decode(const uint32_t* code, int64_t n, float* x) const override { decode_scaled(code, n, levels_, x); }
  CodeFormat format() const override { return LevelFormat{LevelFormat::Scale::largest, levels_, false, 0, "int8"}; }

 private:
  int levels_;  // of each sign
};

}  // namespace

std::unique_ptr<BlockCodec> int8_codec() { return std::make_unique<Nearest>(127); }
std::unique_ptr<BlockCodec> int4_codec() { return std::make_unique<Nearest>(7); }

}  // namespace godwit
