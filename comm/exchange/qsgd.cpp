#include "comm/exchange/qsgd.h"

#include <algorithm>
#include <cmath>

#include "comm/compress/scaled_compressor.h"
#include "comm/compress/wire/block_math.h"
#include "comm/exchange/shared_options.h"
#include "engine/check.h"

namespace godwit {
namespace {

class Qsgd : public ScaledCompressor {
 public:
  explicit Qsgd(int levels) : ScaledCompressor(levels, true) {}
  CodeFormat format() const override { return LevelFormat{LevelFormat::Scale::norm, levels(), true, 0, "qsgd"}; }

 private:
  float scale(const float* x, int64_t n) const override {
    const block::Sizes sizes = block::sizes(x, n);
    const float norm = static_cast<float>(std::sqrt(sizes.squares));
    check(std::isfinite(norm) || !std::isfinite(sizes.largest),
          "qsgd: the norm of a block of gradients overflows float32; lower the learning rate");
    return norm;
  }
};

BlockExchangeOptions blocks_of(const QsgdOptions& o) {
  return block_options("qsgd", o.block_size, o.reply, o.error_feedback);
}

// Error feedback converges only if the coding error is smaller than the input. The expected squared error is up to
// n/(4·levels²) times the squared norm of a block of n values.
void check_contracts(const QsgdOptions& o, const Buckets& buckets) {
  if (o.error_feedback == ErrorFeedback::none) return;
  int64_t n = 0;
  for (const Bucket& bucket : buckets)
    for (const Slot& slot : bucket.slots)
      n = std::max(n, o.block_size > 0 ? std::min(o.block_size, slot.numel) : slot.numel);
  check(n <= 4 * o.levels * o.levels, "qsgd: ", o.levels, " levels for blocks of ", n,
        " values lose more than error feedback can repair (block_size must be at most 4·levels²); raise "
        "exchange.levels, lower exchange.block_size, or set exchange.error_feedback=none");
}

}  // namespace

std::unique_ptr<Compressor> qsgd_compressor(int64_t levels) {
  check(levels >= 1 && levels <= 127, "qsgd: levels is ", levels,
        "; expected 1 (2 bits per value), 2 to 7 (4 bits) or 8 to 127 (8 bits)");
  return std::make_unique<Qsgd>(static_cast<int>(levels));
}

void QsgdOptions::describe(OptionList& list) {
  add_block_size(list, block_size);
  add_reply(list, reply);
  list.add("levels", levels, "number of positive quantization levels; there are as many negative ones", {1, 127});
  add_error_feedback(list, error_feedback);
}

void QsgdOptions::check() const { blocks_of(*this).check(); }

const ExchangeMethod& qsgd_method() {
  static const ExchangeMethod method{
      .name = "qsgd",
      .help = "each value as an integer level, scaled by its block's L2 norm and rounded stochastically",
      .paper =
          "Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding, "
          "arXiv:1610.02132, 2017",
      .bytes =
          "4 bits per parameter (2 bits with 1 level, 8 bits with more than 7) and one float32 per block to the "
          "owners; one float32 per parameter back",
      .defaults = QsgdOptions{},
      .make = [](const AnyOptions& options, const ExchangeInputs& in) {
        const QsgdOptions& o = options.as<QsgdOptions>();
        check_contracts(o, in.buckets);
        return block_exchange(qsgd_compressor(o.levels), blocks_of(o), in.buckets, in.comm, in.seed);
      }};
  return method;
}

}  // namespace godwit
