#include "comm/compress/int8.h"

#include "comm/compress/scaled_compressor.h"
#include "comm/compress/wire/block_math.h"

namespace godwit {
namespace {

class Nearest : public ScaledCompressor {
 public:
  explicit Nearest(int levels) : ScaledCompressor(levels, false) {}
  CodeFormat format() const override { return LevelFormat{LevelFormat::Scale::largest, levels(), false, 0, "int8"}; }

 private:
  float scale(const float* x, int64_t n) const override { return block::largest_magnitude(x, n); }
};

}  // namespace

std::unique_ptr<Compressor> int8_compressor() { return std::make_unique<Nearest>(127); }
std::unique_ptr<Compressor> int4_compressor() { return std::make_unique<Nearest>(7); }

}  // namespace godwit
