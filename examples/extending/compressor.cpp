// A compressor: keeps the upper 16 bits of each float32 (sign, exponent and 7 bits of the significand), which halves
// the bytes.
#include <bit>

#include "quadrants.h"

using namespace godwit;

class UpperHalf : public Compressor {
 public:
  int64_t payload_words(int64_t n) const override { return (n + 1) / 2; }  // 32-bit words for n values

  void encode(const float* x, int64_t n, const BlockRng&, uint32_t* payload) const override {
    std::fill_n(payload, payload_words(n), 0u);
    for (int64_t i = 0; i < n; ++i) payload[i / 2] |= (std::bit_cast<uint32_t>(x[i]) >> 16) << 16 * (i % 2);
  }
  void decode(const uint32_t* payload, int64_t n, float* x) const override {
    for (int64_t i = 0; i < n; ++i) x[i] = std::bit_cast<float>((payload[i / 2] >> 16 * (i % 2)) << 16);
  }
};

struct UpperHalfOptions {
  int64_t block_size = 1024;
  ErrorFeedback error_feedback = ErrorFeedback::worker;

  void describe(OptionList& list) {
    list.add("block_size", block_size, "values per block; 0: one block per parameter", kNotNegative);
    list.add("error_feedback", error_feedback, "where the rounding error is added to the next step");
  }
};

// block_exchange() adds what all compressors need: messages, means, replies, error feedback, state.
std::unique_ptr<Exchange> make_upper_half(const AnyOptions& options, const ExchangeInputs& inputs) {
  const auto& o = options.as<UpperHalfOptions>();
  const BlockExchangeOptions block{.name = "upper_half", .block_size = o.block_size, .reply = Reply::coded,
                                   .worker = at_worker(o.error_feedback) ? Feedback::residual : Feedback::none,
                                   .server_error = at_server(o.error_feedback)};
  return block_exchange(std::make_unique<UpperHalf>(), block, inputs.buckets, inputs.comm, inputs.seed);
}

const ExchangeMethod& upper_half_method() {
  static const ExchangeMethod method{.name = "upper_half", .help = "the upper half of each float32",
      .paper = "an example", .bytes = "2 bytes per parameter to the owners, and 2 back",
      .defaults = UpperHalfOptions(), .make = make_upper_half};
  return method;
}

int main() {
  methods<ExchangeMethod>().push_back(&upper_half_method());  // in Godwit's sources: comm/exchange/methods.cpp
  const ExchangeConfig exchange("upper_half", R"({"error_feedback": "both"})");
  quadrants::train("upper half", {.optimizer = "adamw", .exchange = exchange});
}
