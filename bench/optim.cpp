// Optimizer kernels against a copy of as many bytes: checked against scalar code first, then timed, runs alternating.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "comm/local.h"
#include "comm/wire/scaled_signs.h"
#include "engine/parallel.h"
#include "optim/factory.h"
#include "tests/comm/sign_server.h"
#include "tests/optim/birder_reference.h"

using namespace godwit;

namespace {

constexpr int kRepeats = 15;
constexpr int kSenders = 8;

std::string only;  // what names must contain

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// A copy that moves `traffic` bytes reads one half and writes the other.
class Copy {
 public:
  explicit Copy(int64_t traffic) : from_(static_cast<size_t>(traffic / 2), 1), to_(static_cast<size_t>(traffic / 2)) {}
  void operator()() {
    parallel_for(static_cast<int64_t>(from_.size()), 1 << 16, [&](int64_t begin, int64_t end) {
      std::memcpy(to_.data() + begin, from_.data() + begin, static_cast<size_t>(end - begin));
    });
  }

 private:
  std::vector<char> from_, to_;
};

// bytes: read and written per value. Prints the median over alternating runs, and the ratio to the copy's.
void report(const std::string& name, int64_t values, double bytes, const std::function<void()>& kernel) {
  if (name.find(only) == std::string::npos) return;
  Copy copy(static_cast<int64_t>(bytes * static_cast<double>(values)));
  std::vector<double> kernel_s, copy_s, ratio;
  kernel();
  copy();
  for (int i = 0; i < kRepeats; ++i) {
    kernel_s.push_back(seconds(kernel));
    copy_s.push_back(seconds([&] { copy(); }));
    ratio.push_back(kernel_s.back() / copy_s.back());
  }
  const double s = median(kernel_s);
  std::printf("%-32s %9lld values  %d thread%s  %8.3f ms  %6.2f Gvalue/s  %5.1f GB/s  %5.2f x copy\n", name.c_str(),
              static_cast<long long>(values), context().threads, context().threads == 1 ? " " : "s", 1e3 * s,
              1e-9 * static_cast<double>(values) / s, 1e-9 * bytes * static_cast<double>(values) / s, median(ratio));
}

template <class Moment, class Error>
struct BirderArrays {
  explicit BirderArrays(int64_t values)
      : g(static_cast<size_t>(values)), m(g.size()), b(g.size()), e(g.size()), words(g.size() / 32) {
    RandomStream random(1, Purpose::test);
    for (float& value : g) value = random.uniform() - 0.5f;
  }
  void step(uint32_t t) {
    const birder::Draw draw{birder::Quantizer::random, 3, t, Purpose::worker_sign, 0, 0};
    const int64_t n = static_cast<int64_t>(g.size());
    check(birder::worker_step(g.data(), birder::WorkerState<Moment, Error>{m.data(), b.data(), nullptr, e.data()},
                              words.data(), n, n, {0.95f, 0.05f, 1e-8f, true}, draw),
          "bench: gradients are finite");
  }
  std::vector<float> g;
  std::vector<Moment> m, b;
  std::vector<Error> e;
  std::vector<uint32_t> words;
};

template <class Moment, class Error>
void check_birder() {
  BirderArrays<Moment, Error> arrays(32 * 1000);
  std::vector<reference::WorkerValue<float>> values(arrays.g.size());
  reference::Options options{.beta = 0.95f, .o = 0.05f, .eps = 1e-8f};
  options.bf16_moments = sizeof(Moment) == 2, options.int8_errors = sizeof(Error) == 1;
  for (uint32_t t = 1; t <= 3; ++t) {
    arrays.step(t);
    const birder::Draw draw{birder::Quantizer::random, 3, t, Purpose::worker_sign, 0, 0};
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t element = static_cast<int64_t>(i);
      const bool plus = reference::worker_value(values[i], arrays.g[i], options, draw, element, true).second;
      const float e = sizeof(Error) == 1 ? static_cast<float>(arrays.e[i]) / 64 : static_cast<float>(arrays.e[i]);
      check(reference::bit(arrays.words, element) == plus && values[i].e == e &&
                values[i].m == static_cast<float>(arrays.m[i]),
            "bench: the kernel differs from scalar code at value ", i, ", step ", t);
    }
  }
}

template <class Moment, class Error>
void time_birder(const std::string& name, int64_t values) {
  BirderArrays<Moment, Error> arrays(values);
  uint32_t t = 0;
  report("birder worker" + name, values, 4.125 + 4 * sizeof(Moment) + 2 * sizeof(Error), [&] { arrays.step(++t); });
  std::vector<uint32_t> words(static_cast<size_t>(values / 32 * kSenders));
  RandomStream random(2, Purpose::test);
  for (uint32_t& word : words) word = random.next();
  if (sizeof(Moment) == 4)
    report("birder server, 8 senders" + name, values, 2 * sizeof(Error) + (kSenders + 1) / 8.0, [&] {
      birder::server_step(words.data(), kSenders, arrays.e.data(), nullptr, arrays.words.data(), values, values,
                          {birder::Quantizer::random, 3, ++t, Purpose::server_sign, 0, 0});
    });
}

void time_birder(int64_t values) {
  time_birder<float, float>("", values);
  time_birder<float, int8_t>(", int8 e", values);
  time_birder<bf16, float>(", bf16 m b", values);
  time_birder<bf16, int8_t>(", bf16 m b, int8 e", values);
  std::vector<float> x(static_cast<size_t>(values));
  const std::vector<uint32_t> words(static_cast<size_t>(values / 32), 0x55555555u);
  report("birder update", values, 8.125,
         [&] { birder::update(x.data(), words.data(), nullptr, 0, values, 0.9999f, 1e-3f); });
  report("birder update, mask", values, 8.25,
         [&] { birder::update(x.data(), words.data(), words.data(), 0, values, 0.9999f, 1e-3f); });
}

// Scaled signs of one sender whose message, with one scale a block, is its own.
struct ScaledSigns {
  ScaledSigns(int64_t values, int64_t block) : x(static_cast<size_t>(values)), e(x.size()) {
    const int64_t blocks = (values + block - 1) / block;
    for (int64_t b = 0; b < blocks; ++b)
      tiles.add(b * block, std::min(block, values - b * block), 32 * blocks + b * block, b, b);
    words.resize(static_cast<size_t>(blocks + (values + 31) / 32));
    RandomStream random(1, Purpose::test);
    for (float& value : x) value = random.uniform() - 0.5f;
  }
  void compress() {
    std::fill(words.end() - static_cast<int64_t>((x.size() + 31) / 32), words.end(), 0);
    check(compress_signs(Cpu{}, x.data(), e.data(), tiles, SignScale::l1_mean, words.data()) < 0, "bench: finite");
  }
  std::vector<float> x, e;
  SignTiles tiles;
  std::vector<uint32_t> words;
};

void check_scaled_signs() {
  constexpr int64_t kValues = 100'003;
  for (const int64_t block : {int64_t{4096}, kValues}) {
    ScaledSigns signs(kValues, block);
    reference::SignServer<float> server(1, kValues, reference::blocks_of({kValues}, block),
                                        reference::blocks_of({kValues}, block));
    std::vector<float> out(signs.x.size());
    for (int step = 0; step < 3; ++step) {
      signs.compress();
      expand_signs(Cpu{}, signs.words.data(), signs.tiles, out.data());
      check(out == server.mean({signs.x}) && signs.e == server.e[0], "bench: scaled signs differ from scalar code");
    }
  }
}

void time_scaled_signs(int64_t values) {
  ScaledSigns signs(values, 4096), one_scale(values, values);
  report("scaled signs, worker", values, 12.125, [&] { signs.compress(); });
  report("same, one scale", values, 20.125, [&] { one_scale.compress(); });
  const auto stride = static_cast<int64_t>(signs.words.size());
  std::vector<uint32_t> received;
  for (int s = 0; s < kSenders; ++s) received.insert(received.end(), signs.words.begin(), signs.words.end());
  report("same, server, 8 senders", values, 8 + (kSenders + 1) / 8.0, [&] {
    std::fill(signs.words.end() - values / 32, signs.words.end(), 0);
    check(compress_mean_of_signs(Cpu{}, received.data(), kSenders, stride, signs.e.data(), signs.tiles,
                                 SignScale::l1_mean, signs.words.data()) < 0,
          "bench: finite");
  });
  report("same, expanded", values, 4.125, [&] { expand_signs(Cpu{}, signs.words.data(), signs.tiles, signs.x.data()); });
}

// apply() of one bucket; the reference is the same update of its first values in a bucket of their own, one by one.
void time_optimizer(const std::string& name, double bytes, int64_t values, Communicator& comm) {
  const auto make_buckets = [](int64_t n) {
    Buckets buckets({{"x", Var(Tensor::zeros({n}), true)}}, {1ll << 40, 1ll << 40, 32});
    RandomStream random(1, Purpose::test);
    for (float& g : buckets[0].grad.span<float>()) g = random.uniform() - 0.5f;
    return buckets;
  };
  const OptimizerConfig config = optimizer_defaults(name);
  Buckets buckets = make_buckets(values), single = make_buckets(1);
  auto optimizer = make_optimizer(config, buckets, comm, 1, make_exchange({"dense"}, buckets, comm, 1));
  auto one = make_optimizer(config, single, comm, 1, make_exchange({"dense"}, buckets, comm, 1));
  int64_t t = 0;
  const auto step = [&] { optimizer->apply(buckets[0], {++t, 1e-3}); };
  for (int i = 0; i < 3; ++i) {
    step();
    one->apply(single[0], {t, 1e-3});
  }
  check(buckets[0].param.item() == single[0].param.item(), "bench: ", name, ": vector and single value differ");
  report(name, values, bytes, step);
}

void time_all(int threads) {
  run_local({1, 1},
            [](Communicator& comm) {
              for (const int64_t values : {int64_t{1} << 20, int64_t{25} * (1 << 20)}) {
                time_birder(values);
                time_scaled_signs(values);
                for (const auto& [name, bytes] : std::vector<std::pair<const char*, double>>{
                         {"sgd", 12}, {"sgdm", 20}, {"adam", 28}, {"adamw", 28}, {"softsignsgd", 28}}) {
                  time_optimizer(name, bytes, values, comm);
                }
              }
            },
            {.threads_per_rank = threads});
}

}  // namespace

// bench_optim [NAME]: times those whose name contains it.
int main(int count, char** arguments) {
  try {
    if (count > 1) only = arguments[1];
    check_birder<float, float>();
    check_birder<float, int8_t>();
    check_birder<bf16, float>();
    check_birder<bf16, int8_t>();
    check_scaled_signs();
    time_all(1);
    if (hardware_threads() > 1) time_all(hardware_threads());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
