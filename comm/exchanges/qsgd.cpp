#include <cmath>

#include "comm/exchanges/codecs.h"
#include "comm/wire/block_math.h"
#include "comm/wire/levels.h"
#include "engine/check.h"

namespace godwit {
namespace {

class Qsgd : public BlockCodec {
 public:
  explicit Qsgd(int levels) : levels_(levels) {}
  int64_t words(int64_t n) const override { return scaled_words(n, levels_); }
  void encode(const float* x, int64_t n, const BlockDraw& draw, uint32_t* code) const override {
    const float norm = static_cast<float>(std::sqrt(block::sum_of_squares(x, n)));
    check(std::isfinite(norm), "qsgd: the norm of a block of gradients is beyond float32; lower the learning rate");
    encode_scaled(x, n, norm, levels_, &draw, code);
  }
  void decode(const uint32_t* code, int64_t n, float* x) const override { decode_scaled(code, n, levels_, x); }
  CodeFormat format() const override { return LevelFormat{LevelFormat::Scale::norm, levels_, true, 0, "qsgd"}; }

 private:
  int levels_;
};

}  // namespace

std::unique_ptr<BlockCodec> qsgd_codec(int64_t levels) {
  check(levels >= 1 && levels <= 127, "qsgd: levels is ", levels,
        "; 1 (2 bits a value), up to 7 (4 bits) or up to 127 (8 bits) fit");
  return std::make_unique<Qsgd>(static_cast<int>(levels));
}

}  // namespace godwit
