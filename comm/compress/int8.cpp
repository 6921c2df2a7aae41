#include "comm/compress/codecs.h"
#include "comm/compress/scaled_codec.h"
#include "comm/compress/wire/block_math.h"

namespace godwit {
namespace {

class Nearest : public ScaledCodec {
 public:
  explicit Nearest(int levels) : ScaledCodec(levels, false) {}
  CodeFormat format() const override { return LevelFormat{LevelFormat::Scale::largest, levels(), false, 0, "int8"}; }

 private:
  float scale(const float* x, int64_t n) const override { return block::largest_magnitude(x, n); }
};

}  // namespace

std::unique_ptr<Compressor> int8_codec() { return std::make_unique<Nearest>(127); }
std::unique_ptr<Compressor> int4_codec() { return std::make_unique<Nearest>(7); }

}  // namespace godwit
