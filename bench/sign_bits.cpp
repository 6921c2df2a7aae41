// Throughput of the sign-bit kernels on one thread. Before timing, sums are checked against a plain count.
#include "comm/compress/wire/sign_bits.h"

#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "bench/program.h"
#include "engine/context.h"
#include "engine/philox.h"

namespace {

using namespace godwit;

// The shortest time of several calls, in seconds.
double fastest(const std::function<void()>& work) {
  double best = 1e9;
  for (int round = 0; round < 15; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

void check_sums(const std::vector<uint32_t>& words, int64_t senders, const std::vector<int16_t>& sums) {
  const int64_t stride = static_cast<int64_t>(words.size()) / senders;
  for (int64_t j = 0; j < static_cast<int64_t>(sums.size()); ++j) {
    int sum = 0;
    for (int64_t s = 0; s < senders; ++s)
      sum += (words[static_cast<size_t>(s * stride + j / 32)] >> (j % 32) & 1) ? 1 : -1;
    check(sum == sums[static_cast<size_t>(j)], "value ", j, ": counted ", sum, ", kernel ",
          sums[static_cast<size_t>(j)]);
  }
}

void run(int64_t n) {
  RandomStream random(1, Purpose::test);
  for (int64_t senders : {2, 8, 9, 64}) {
    std::vector<uint32_t> words(static_cast<size_t>(senders * sign_words(n)));
    for (uint32_t& word : words) word = random.next();
    std::vector<int16_t> sums(static_cast<size_t>(n));
    sum_signs(Cpu{}, words.data(), senders, sums.data(), n);
    check_sums(words, senders, sums);
    const double seconds = fastest([&] { sum_signs(Cpu{}, words.data(), senders, sums.data(), n); });
    std::printf("sum of %3lld senders  %10lld values  %7.2f G values/s\n", static_cast<long long>(senders),
                static_cast<long long>(n), static_cast<double>(n) / seconds * 1e-9);
  }
  std::vector<float> x(static_cast<size_t>(n)), back(x.size());
  for (float& value : x) value = to_unit(random.next()) - 0.5f;
  std::vector<uint32_t> words(static_cast<size_t>(sign_words(n)));
  const double pack = fastest([&] { pack_signs(Cpu{}, x.data(), words.data(), n); });
  const double unpack = fastest([&] { unpack_signs(Cpu{}, words.data(), back.data(), n); });
  for (size_t j = 0; j < x.size(); ++j)
    check(back[j] == (x[j] >= 0 ? 1.0f : -1.0f), "value ", j, " came back as ", back[j]);
  std::printf("pack   %10lld values  %7.2f G values/s\nunpack %10lld values  %7.2f G values/s\n",
              static_cast<long long>(n), static_cast<double>(n) / pack * 1e-9, static_cast<long long>(n),
              static_cast<double>(n) / unpack * 1e-9);
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_sign_bits\n"
      "Throughput of the sign-bit kernels on one thread, after a check of the sums against a plain count.";
  return bench::run_program(argc, argv, usage, [&] {
    const ContextGuard guard([](Context& next) { next.threads = 1; });
    for (int64_t n : {1 << 16, 1 << 24}) run(n);
  });
}
