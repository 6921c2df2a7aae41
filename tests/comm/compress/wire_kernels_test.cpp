// Kernels of compressors compared with scalar code, on every instruction set of this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "comm/compress/int8.h"
#include "comm/compress/loco_pieces.h"
#include "comm/compress/wire/block_math.h"
#include "comm/compress/wire/half.h"
#include "comm/compress/wire/select.h"
#include "comm/compress/wire/signed_means.h"
#include "comm/exchange/one_bit_sgd.h"
#include "comm/exchange/qsgd.h"
#include "comm/exchange/terngrad.h"
#include "comm/exchange/topk.h"
#include "engine/context.h"
#include "tests/comm/exchange/exchange_harness.h"
#include "tests/comm/table.h"
#include "tests/every_target.h"
#include "tests/support.h"

namespace godwit {
namespace wire_kernels_test {

using test::random_row;

class WireKernelsOn : public OnEveryTarget {};
GODWIT_EVERY_TARGET(WireKernelsOn);

TEST_P(WireKernelsOn, PositionsOfLargeValuesAscend) {
  for (const int64_t n : {0, 1, 15, 16, 17, 1000})
    for (const float least : {0.0f, 0.5f, 3.0f}) {
      const std::vector<float> x = random_row<float>(6, 1, n);
      std::vector<uint32_t> indices(static_cast<size_t>(n + kIndicesSlack)), expected;
      for (int64_t i = 0; i < n; ++i)
        if (std::abs(x[static_cast<size_t>(i)]) >= least) expected.push_back(static_cast<uint32_t>(i));
      indices.resize(static_cast<size_t>(indices_of_at_least(x.data(), n, magnitude_bits(least), indices.data())));
      EXPECT_EQ(indices, expected) << n;
    }
}

double lane_sum(const std::vector<float>& x, bool positive) {
  std::vector<double> terms;
  for (const float v : x) terms.push_back((positive ? v > 0 : v < 0) ? static_cast<double>(v) : 0);
  return test::lane_sum(terms);
}

TEST_P(WireKernelsOn, SignedSumsHaveOneOrder) {
  for (const int64_t n : {1, 15, 16, 17, 33, 1000, 5000, 8192, 8193, 200000}) {
    std::vector<float> x = random_row<float>(7, 1, n);
    x[0] = -0.0f;
    SumsBySign whole, pieces;
    whole.add(x.data(), n);
    for (int64_t at = 0; at < n; at += 48) pieces.add(x.data() + at, std::min<int64_t>(48, n - at));
    EXPECT_EQ(whole.positive(), lane_sum(x, true)) << n;
    EXPECT_EQ(whole.negative(), lane_sum(x, false)) << n;
    EXPECT_EQ(pieces.positive(), whole.positive()) << n;
    EXPECT_EQ(pieces.negative(), whole.negative()) << n;
  }
}

// The k largest values by sorting; ties go to the first position, even if a sample of the values is misleading.
TEST_P(WireKernelsOn, TopKMatchesSorting) {
  const auto compressor = topk_compressor(0.01);
  for (const int64_t n : {100, 5000, 65536, 70001})
    for (const int kind : {0, 1, 2, 3}) {
      std::vector<float> x = random_row<float>(8, kind, n);
      for (int64_t i = 0; i < n; ++i) {
        float& v = x[static_cast<size_t>(i)];
        if (kind == 1) v = std::nearbyint(v);         // many ties
        if (kind == 2) v = i % 17 == 0 ? 9 : v;       // the sample contains only these
        if (kind == 3) v = i % 17 == 0 ? 0.0f : v;
      }
      std::vector<int64_t> order(x.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return std::abs(x[static_cast<size_t>(a)]) > std::abs(x[static_cast<size_t>(b)]);
      });
      std::vector<float> expected(x.size()), back(x.size());
      for (int64_t j = 0; j < (n + 99) / 100; ++j)
        expected[static_cast<size_t>(order[static_cast<size_t>(j)])] =
            x[static_cast<size_t>(order[static_cast<size_t>(j)])];
      std::vector<uint32_t> code(static_cast<size_t>(compressor->payload_words(n)));
      compressor->encode(x.data(), n, {}, code.data());
      compressor->decode(code.data(), n, back.data());
      EXPECT_EQ(back, expected) << n << " values, kind " << kind;
    }
}

// Like the gradient of an embedding: selects the few nonzero values, then the first zeros.
TEST_P(WireKernelsOn, TopKIsFilledWithTheFirstZeros) {
  for (const int64_t n : {1000, 40000}) {
    std::vector<float> x(static_cast<size_t>(n));
    x[1] = -0.0f, x[3] = 5, x[500] = -1e-40f, x[static_cast<size_t>(n) - 1] = -2;
    const auto compressor = topk_compressor(0.01);
    const size_t k = static_cast<size_t>(n / 100);
    std::vector<uint32_t> code(static_cast<size_t>(compressor->payload_words(n)));
    compressor->encode(x.data(), n, {}, code.data());
    for (size_t i = 0; i < k; ++i) {
      const size_t index = i + 1 == k ? x.size() - 1 : i + 2 == k ? 500 : i;
      EXPECT_EQ(code[k + i / 2] >> (16 * (i % 2)) & 0xFFFF, index) << n;
      EXPECT_EQ(code[i], std::bit_cast<uint32_t>(x[index])) << n << ", index " << index;
    }
  }
}

TEST_P(WireKernelsOn, TopKRefusesIndicesOutsideTheBlock) {
  for (const int64_t n : {1000, 70000}) {  // indices of 16 and 32 bits
    const auto compressor = topk_compressor(0.001);
    std::vector<float> x(static_cast<size_t>(n)), scratch(x);
    std::vector<uint32_t> code(static_cast<size_t>(compressor->payload_words(n)));
    code.back() = static_cast<uint32_t>(n - 1);
    compressor->decode(code.data(), n, x.data());
    code.back() = static_cast<uint32_t>(n);
    const std::string expected = "index " + std::to_string(n);
    for (const std::string& error : {error_of([&] { compressor->decode(code.data(), n, x.data()); }),
                                     error_of([&] { compressor->add(code.data(), n, 1, x.data(), scratch.data()); })})
      EXPECT_NE(error.find(expected), std::string::npos) << error;
  }
}

TEST_P(WireKernelsOn, SquaresAndMaximaHaveOneOrder) {
  const std::vector<float> x = random_row<float>(12, 0, 200000);
  for (const int64_t n : {1, 15, 16, 17, 100, 8192, 8193, 200000}) {
    std::vector<double> squares;
    float largest = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double v = x[static_cast<size_t>(i)];
      squares.push_back(v * v);
      largest = std::max(largest, std::abs(x[static_cast<size_t>(i)]));
    }
    const block::Sizes sizes = block::sizes(x.data(), n);
    EXPECT_EQ(sizes.squares, test::lane_sum(squares)) << n;
    EXPECT_EQ(sizes.largest, largest) << n;
  }
  EXPECT_EQ(block::sizes(x.data(), 0).squares, 0);
  EXPECT_EQ(block::sizes(x.data(), 0).largest, 0);
}

TEST_P(WireKernelsOn, CompressorsDetectNonFiniteValues) {
  const std::pair<std::unique_ptr<Compressor>, const char*> compressors[] = {
      {one_bit_compressor(), "one_bit"},    {topk_compressor(0.01), "topk"}, {qsgd_compressor(7), "qsgd"},
      {int8_compressor(), "int8"},          {int4_compressor(), "int4"},     {terngrad_compressor(2.5), "terngrad"},
      {terngrad_compressor(0), "unclipped"}};
  constexpr int64_t kValues = 20000;
  const std::vector<float> x = random_row<float>(13, 0, kValues);
  for (const auto& [compressor, name] : compressors) {
    std::vector<uint32_t> code(static_cast<size_t>(compressor->payload_words(kValues))), same(code.size());
    const BlockRng rng{{1, 2, 3, 0}, 5};
    compressor->encode(x.data(), kValues, rng, code.data());
    EXPECT_TRUE(compressor->encode_finite(x.data(), kValues, rng, same.data())) << name;
    EXPECT_EQ(code, same) << name;
    for (const float bad : {NAN, -NAN, INFINITY, -INFINITY})
      for (const int64_t at : {int64_t{0}, int64_t{8191}, kValues - 1}) {
        std::vector<float> y = x;
        y[static_cast<size_t>(at)] = bad;
        EXPECT_FALSE(compressor->encode_finite(y.data(), kValues, rng, code.data()))
            << name << ": " << bad << " at " << at;
      }
    const std::vector<float> all(static_cast<size_t>(kValues), NAN);
    EXPECT_FALSE(compressor->encode_finite(all.data(), kValues, rng, code.data())) << name;
  }
}

// The sum is 15 · 1.14453125, and the quotient is halfway between two bfloat16 values. A factor of 1/15 would round up.
TEST(Halves, TheMeanIsAQuotient) {
  const Tensor parts = Tensor::zeros({15}, DType::bf16), mean({1}, DType::bf16);
  const float summands[] = {16, 1.1640625f, 0.00390625f};
  for (int i = 0; i < 3; ++i) parts.data<bf16>()[i] = bf16(summands[i]);
  mean_of_halves(Cpu{}, parts, 15, mean);
  EXPECT_EQ(float{mean.data<bf16>()[0]}, 1.140625f);
}

// Sums of 8-bit codes have four bytes with more than 256 workers.
TEST(LocoPieces, SumsOfAnyWidthGiveTheMeans) {
  constexpr int64_t kValues = 5;
  const std::vector<uint32_t> words{0x7F80FF01, 0x00000003};
  const loco::Messages messages{words.data(), std::ssize(words), 1, 8};
  Table<loco::Piece> pieces;
  pieces.all.push_back({0, kValues, 0, 0, 0});
  const float scale = 1;
  std::vector<float> expected(kValues);
  loco::mean_of_codes(Cpu{}, messages, pieces, &scale, expected.data());
  for (const int64_t width : {1, 2, 4}) {
    std::vector<uint8_t> sums(static_cast<size_t>(width * kValues));
    std::vector<float> mean(kValues);
    loco::sum_codes(Cpu{}, messages, pieces, width, sums.data());
    loco::mean_of_sums(Cpu{}, messages, sums.data(), width, pieces, &scale, mean.data());
    EXPECT_EQ(mean, expected) << width;
  }
}

// Sums have the documented order for every vector width.
TEST(BlockMath, SumsHaveOneOrder) {
  const std::vector<float> x = random_row<float>(11, 0, 200000);
  for (const int bits : {128, 256, 512}) {
    const ContextGuard guard([&](Context& next) { next.vector_bits = bits; });
    for (const int64_t n : {0, 1, 15, 16, 17, 100, 3001, 8192, 8193, 200000}) {
      std::vector<double> plain, magnitudes;
      for (int64_t i = 0; i < n; ++i) {
        plain.push_back(x[static_cast<size_t>(i)]);
        magnitudes.push_back(std::abs(x[static_cast<size_t>(i)]));
      }
      EXPECT_EQ(block::sum_of(x.data(), n), test::lane_sum(plain));
      EXPECT_EQ(block::sum_of_magnitudes(x.data(), n), test::lane_sum(magnitudes));
    }
    for (const float bad : {NAN, -NAN, INFINITY, -INFINITY})
      for (const int64_t at : {0, 5, 32}) {
        std::vector<float> y(x.begin(), x.begin() + 33);
        EXPECT_TRUE(block::all_finite(y.data(), 33));
        y[static_cast<size_t>(at)] = bad;
        EXPECT_FALSE(block::all_finite(y.data(), 33));
      }
  }
}

}  // namespace wire_kernels_test
}  // namespace godwit
