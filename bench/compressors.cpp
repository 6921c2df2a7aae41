// Checks the decoded values of compressors, then times the compressors relative to a copy of as many bytes, in
// alternating runs. The copy calls memcpy on pieces that are small enough to avoid non-temporal stores, so that sizes
// are comparable.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/program.h"
#include "comm/compress/int8.h"
#include "comm/compress/wire/loco_codes.h"
#include "comm/compress/wire/sign_bits.h"
#include "comm/exchange/block_exchange.h"
#include "comm/exchange/one_bit_sgd.h"
#include "comm/exchange/qsgd.h"
#include "comm/exchange/terngrad.h"
#include "comm/exchange/topk.h"
#include "engine/parallel.h"

using namespace godwit;

namespace {

constexpr int kRepeats = 9;

std::string only;  // substring that names must contain

// Times `kernel` and a copy. `bytes`: number of bytes per value that the kernel and the copy each read and write.
void report(const std::string& name, int64_t values, double bytes, const std::function<void()>& kernel) {
  if (name.find(only) == std::string::npos) return;
  constexpr int64_t kPiece = 1 << 18;  // bytes
  const int64_t half = static_cast<int64_t>(bytes * static_cast<double>(values) / 2);
  const Tensor from = Tensor::zeros({half}, DType::u8), to = Tensor::zeros({half}, DType::u8);
  const auto copy = [&] {
    parallel_for(half, 1 << 16, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += kPiece)
        std::memcpy(to.data<uint8_t>() + at, from.data<uint8_t>() + at,
                    static_cast<size_t>(std::min(kPiece, end - at)));
    });
  };
  kernel();
  copy();
  std::vector<double> ms, ratio;
  for (int i = 0; i < kRepeats; ++i) {
    ms.push_back(ms_of(kernel));
    ratio.push_back(ms.back() / ms_of(copy));
  }
  const double each = median(ms);
  std::printf("%-28s %9lld values  %d thread%s %8.3f ms  %6.2f Gvalue/s  %5.2f x copy\n", name.c_str(),
              static_cast<long long>(values), context().threads, context().threads == 1 ? " " : "s", each,
              1e-6 * static_cast<double>(values) / each, median(ratio));
}

// Checks that the decoded values have at most `largest_error` of the squares of the values as error, and a product with
// them of at least `smallest_share` of the squares; then times encoding and decoding.
void time_compressor(const char* name, const Compressor& compressor, double largest_error, double smallest_share,
                     int64_t values, int64_t block = 1024) {
  const Tensor x = random_tensor({values}, DType::f32, 3), back({values});
  const int64_t blocks = values / block, words = compressor.payload_words(block);
  const Tensor codes({blocks * words}, DType::u32);
  BlockTable<CodedBlock> table;
  for (int64_t i = 0; i < blocks; ++i) table.all.push_back({i * block, block, i * words, 0});
  const auto encode = [&] {
    const Tensor faults = encode_blocks(Cpu{}, compressor, x.data<float>(), Feedback::none, nullptr, table,
                                        {1, 1, 1, 0}, 0, codes.data<uint32_t>());
    check(encoded(faults), "bench: ", name, ": a value is not finite");
  };
  const auto decode = [&] {
    mean_of_blocks(Cpu{}, compressor, codes.data<uint32_t>(), 0, 1, table, false, back.data<float>());
  };
  encode();
  decode();
  double error = 0, size = 0, product = 0;
  for (int64_t i = 0; i < values; ++i) {
    const double difference = back.data<float>()[i] - x.data<float>()[i];
    error += difference * difference;
    product += static_cast<double>(back.data<float>()[i]) * x.data<float>()[i];
    size += static_cast<double>(x.data<float>()[i]) * x.data<float>()[i];
  }
  check(error <= largest_error * size, "bench: ", name, " loses ", error / size, " of the values");
  check(product >= smallest_share * size, "bench: ", name, " has only ", product / size, " of the values");
  const double code = 4 * static_cast<double>(words) / block;
  report(std::string(name) + " encode", values, 4 + code, encode);
  report(std::string(name) + " decode", values, 4 + code, decode);
}

void time_majority(int64_t values) {
  constexpr int64_t kSenders = 8;
  std::vector<uint32_t> words(static_cast<size_t>(kSenders * sign_words(values))), votes(words.size() / kSenders);
  RandomStream random(2, Purpose::test);
  for (uint32_t& word : words) word = random.next();
  majority_signs(Cpu{}, words.data(), kSenders, votes.data(), values);
  for (size_t j = 0; j < 3200; ++j) {
    int64_t ones = 0;
    for (size_t s = 0; s < kSenders; ++s) ones += words[s * votes.size() + j / 32] >> (j % 32) & 1;
    check((votes[j / 32] >> (j % 32) & 1) == (2 * ones >= kSenders), "bench: wrong vote on value ", j);
  }
  report("majority, 8 senders", values, (kSenders + 1) / 8.0,
         [&] { majority_signs(Cpu{}, words.data(), kSenders, votes.data(), values); });
}

// Times LoCo's worker and the sum of eight workers' codes.
void time_loco(int bits, bool random, int64_t values) {
  constexpr int64_t kPiece = 8192;
  constexpr int kSenders = 8;
  const Tensor g = random_tensor({values}, DType::f32, 3), sums({values}, DType::i32);
  const int64_t stride = values * bits / 32;
  const Tensor words = Tensor::zeros({kSenders * stride}, DType::u32), e = Tensor::zeros({values}, DType::u8);
  const auto pieces = [=](const auto& f) {
    parallel_for(values / kPiece, 2, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) f(i * kPiece);
    });
  };
  const loco::Settings settings{bits, 1, 0, 1e30f, random, false};
  const float s = bits == 8 ? 30 : bits == 4 ? 2 : 0.6f;
  uint32_t step = 0;
  const auto encode = [&] {
    ++step;
    pieces([&](int64_t at) {
      const loco::Counts counts =
          loco::encode(g.data<float>() + at, reinterpret_cast<int8_t*>(e.data<uint8_t>()) + at, kPiece,
                       {s, 4 * s, 4 * s}, settings, {1, step, 1, 0}, at, words.data<uint32_t>() + at * bits / 32);
      check(counts.finite, "bench: loco: a value is not finite");
    });
  };
  const auto sum = [&] {
    pieces([&](int64_t at) {
      loco::sum_codes(words.data<uint32_t>() + at * bits / 32, stride, kSenders, bits, kPiece,
                      sums.data<int32_t>() + at);
    });
  };
  double sent = 0, all = 0;  // sums of the sent and of the original values
  for (int t = 0; t < 50; ++t) {
    encode();
    sum();  // the other senders' codes are zero: value 0, or −1 with one bit
    for (int64_t i = 0; i < 100; ++i) {
      const int own = sums.data<int32_t>()[i] + (bits == 1 ? kSenders - 1 : 0);
      sent += own / (bits == 1 ? 2.0 * s : 1.0 * s);
      all += g.data<float>()[i];
    }
  }
  check(bits == 1 || std::abs(sent - all) <= 100, "bench: loco: sent ", sent, " of ", all);
  const std::string name = "loco, " + std::to_string(bits) + (bits > 1 ? " bits" : " bit");
  report(name + (random ? ", random" : ", nearest"), values, 6 + bits / 8.0, encode);
  if (random) report(name + ", 8 senders", values, 4 + bits, sum);
}

void time_all(int threads) {
  const ContextGuard guard([&](Context& next) { next.threads = threads; });
  for (const int64_t values : {int64_t{1} << 20, int64_t{25} << 18, int64_t{105} << 20}) {
    time_compressor("int8", *int8_compressor(), 1e-3, 0.99, values);
    time_compressor("qsgd, 7 levels", *qsgd_compressor(7), 10, 0.9, values);
    time_compressor("terngrad", *terngrad_compressor(2.5), 2, 0.9, values);
    time_compressor("one_bit_sgd", *one_bit_compressor(), 0.5, 0.5, values);
    time_compressor("topk, 1 %", *topk_compressor(0.01), 1, 0.02, values, 1 << 18);
    time_majority(values);
    for (const int bits : {1, 4, 8})
      for (const bool random : {true, false}) time_loco(bits, random, values);
  }
}

}  // namespace

// bench_compressors [NAME]: times the compressors whose names contain NAME.
int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_compressors [NAME]\n"
      "Compressors relative to a copy of as many bytes, with one thread and with all threads.\n"
      "NAME: only the kernels whose name contains it";
  return bench::run_program(argc, argv, usage, [&] {
    if (argc > 1) only = argv[1];
    time_all(1);
    if (hardware_threads() > 1) time_all(hardware_threads());
  });
}
