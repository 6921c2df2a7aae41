// Compressed blocks and their means must have equal bits on the GPU and the CPU. Covers blocks that one thread block
// processes, and blocks that are split into pieces.
#include <gmock/gmock.h>

#include <cmath>

#include "comm/compress/block_codes.h"
#include "comm/compress/int8.h"
#include "comm/compress/wire/block_math.h"
#include "comm/exchange/one_bit_sgd.h"
#include "comm/exchange/qsgd.h"
#include "comm/exchange/terngrad.h"
#include "comm/exchange/topk.h"
#include "engine/philox.h"
#include "tests/gpu_memory.h"
#include "tests/support.h"

namespace godwit {
namespace cuda_block_codes_kernels_test {

class CudaBlockCodes : public OnGpu {
 protected:
  Cuda device() const { return cuda_of(cuda_device(0)); }
};

// Lengths around the piece size and the limit of 16-bit positions; kLongLengths also needs a second round of pieces per
// lane.
const std::vector<int64_t> kLengths{kSumPiece + 1, 5, 65537, 1, kSumPiece, 20000, 100};
const std::vector<int64_t> kLongLengths{kSumPiece + 1, 5, 17 * kSumPiece + 333, 1, kSumPiece, 2 * kSumPiece, 100};

struct Case {
  std::string name;
  std::unique_ptr<Compressor> compressor;
};

BlockTable<CodedBlock> blocks_of(const Compressor& compressor, const std::vector<int64_t>& lengths, int64_t gap) {
  BlockTable<CodedBlock> blocks;
  int64_t begin = 0, word = 0;
  for (const int64_t n : lengths) {
    blocks.all.push_back({begin, n, word, begin});
    begin += n, word += compressor.payload_words(n) + gap;
  }
  return blocks;
}

// Compares each compressor's message, its residual, and the mean over senders. ties: only few different magnitudes.
void compare(Cuda device, const std::string& name, const Compressor& compressor, Feedback feedback, int senders,
             bool ties) {
  SCOPED_TRACE(::testing::Message() << name << ", memory " << static_cast<int>(feedback) << ", " << senders
                                    << " senders, ties " << ties);
  const BlockTable<CodedBlock> blocks = blocks_of(compressor, name == "topk" ? kLengths : kLongLengths, 3);
  const int64_t n = blocks.all.back().begin + blocks.all.back().n;
  const int64_t stride = blocks.all.back().at + compressor.payload_words(blocks.all.back().n) + 3;
  std::vector<float> mean = random_values<float>(n, 1);
  const There<float> on_mean(mean);
  std::vector<uint32_t> sent;
  for (int sender = 0; sender < senders; ++sender) {
    auto x = random_values<float>(n, static_cast<uint32_t>(10 + sender)), kept = random_values<float>(n, 2);
    if (ties)
      for (float& v : x) v = std::nearbyint(2 * v);
    if (ties) kept.assign(kept.size(), 0.0f);
    const There<float> on_x(x), on_kept(kept);
    std::vector<uint32_t> words(static_cast<size_t>(stride), 0xDEADBEEF);
    const There<uint32_t> on_words(words);
    const RngKey rng{7, 3, static_cast<uint32_t>(Purpose::gradient_code), static_cast<uint32_t>(sender)};
    EXPECT_TRUE(
        encoded(encode_blocks(Cpu{}, compressor, x.data(), feedback, kept.data(), blocks, rng, 1001, words.data())));
    EXPECT_TRUE(encoded(
        encode_blocks(device, compressor, on_x.data(), feedback, on_kept.data(), blocks, rng, 1001, on_words.data())));
    expect_same(on_words, words, "message");
    expect_same(on_kept, kept, "kept");
    sent.insert(sent.end(), words.begin(), words.end());
  }
  const There<uint32_t> on_sent(sent);
  const bool moves = feedback == Feedback::ef21;
  mean_of_blocks(Cpu{}, compressor, sent.data(), stride, senders, blocks, moves, mean.data());
  mean_of_blocks(device, compressor, on_sent.data(), stride, senders, blocks, moves, on_mean.data());
  expect_same(on_mean, mean, "mean");
}

TEST_F(CudaBlockCodes, TopKMatchesTheCpu) {
  on_gpu([&] {
    for (const double density : {0.003, 0.3, 1.0}) {
      const auto compressor = topk_compressor(density);
      compare(device(), "topk", *compressor, Feedback::residual, 3, false);
      compare(device(), "topk", *compressor, Feedback::ef21, 2, true);
      compare(device(), "topk", *compressor, Feedback::none, 1, true);
    }
  });
}

TEST_F(CudaBlockCodes, LevelsMatchTheCpu) {
  on_gpu([&] {
    for (const int levels : {1, 7, 127})
      compare(device(), "qsgd", *qsgd_compressor(levels), Feedback::residual, 2, false);
    compare(device(), "terngrad", *terngrad_compressor(2.5), Feedback::none, 3, false);
    compare(device(), "terngrad", *terngrad_compressor(0), Feedback::residual, 1, false);
    compare(device(), "int8", *int8_compressor(), Feedback::ef21, 2, false);
  });
}

TEST_F(CudaBlockCodes, OneBitCodesMatchTheCpu) {
  on_gpu([&] {
    const auto compressor = one_bit_compressor();
    compare(device(), "one_bit", *compressor, Feedback::none, 1, false);
    compare(device(), "one_bit", *compressor, Feedback::residual, 3, false);
    compare(device(), "one_bit", *compressor, Feedback::ef21, 2, true);
  });
}

// Tests the last piece of a long block, and a short block.
TEST_F(CudaBlockCodes, NonFiniteValuesAreFound) {
  on_gpu([&] {
    std::vector<Case> cases;
    cases.push_back({"topk", topk_compressor(0.01)});
    cases.push_back({"qsgd", qsgd_compressor(7)});
    cases.push_back({"one_bit", one_bit_compressor()});
    for (const auto& [name, compressor] : cases) {
      const BlockTable<CodedBlock> blocks = blocks_of(*compressor, kLengths, 0);
      const CodedBlock &longest = blocks.all[2], &last = blocks.all.back();
      for (const int64_t at : {longest.begin + longest.n - 1, last.begin + 7}) {
        std::vector<float> x(static_cast<size_t>(last.begin + last.n), 1);
        x[static_cast<size_t>(at)] = NAN;
        const There<float> on_x(x);
        const There<uint32_t> words(
            std::vector<uint32_t>(static_cast<size_t>(last.at + compressor->payload_words(last.n))));
        EXPECT_FALSE(encoded(
            encode_blocks(device(), *compressor, on_x.data(), Feedback::none, nullptr, blocks, {}, 0, words.data())))
            << name << " at " << at;
      }
    }
  });
}

}  // namespace cuda_block_codes_kernels_test
}  // namespace godwit
