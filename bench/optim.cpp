// Checks optimizer kernels against scalar code, then times them relative to a copy of as many bytes, in alternating
// runs.
//   bench_optim [only=] [device=cpu] [values=] [repeats=15] [json=0]
// only: a substring of the names to run. values: values per array. Default on the CPU: 1 and 25 Mi, with one thread and
// with all threads. Default on a GPU: 110 M.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/program.h"
#include "bench/settings.h"
#include "comm/compress/wire/scaled_signs.h"
#include "comm/exchange/method.h"
#include "optim/birder.h"
#include "optim/method.h"
#include "tests/comm/exchange/sign_server.h"
#include "tests/optim/birder_reference.h"

using namespace godwit;

namespace {

constexpr int kSenders = 8;

std::string only;
int repeats = 15;
bool json = false;

std::vector<float> uniform_values(int64_t n) {
  std::vector<float> values(static_cast<size_t>(std::min<int64_t>(n, 1 << 22)));
  RandomStream random(1, Purpose::test);
  for (float& value : values) value = random.uniform() - 0.5f;
  for (size_t i = values.size(); i < static_cast<size_t>(n); ++i) values.push_back(values[i % (1 << 22)]);
  return values;
}

// `bytes`: bytes read and written per value. Prints the median over alternating runs, and the ratio to a copy that
// reads half of the bytes and writes the other half.
void report(const std::string& name, int64_t values, double bytes, const std::function<void()>& kernel) {
  if (name.find(only) == std::string::npos) return;
  const auto half = static_cast<int64_t>(bytes * static_cast<double>(values) / 2);
  const Tensor from = Tensor::full({half}, 1, DType::u8), to = Tensor::zeros({half}, DType::u8);
  const auto copy = [&] { to.copy_from(from); };
  std::vector<double> kernel_ms, copy_ms, ratio;
  ms_of(kernel);
  ms_of(copy);
  for (int i = 0; i < repeats; ++i) {
    kernel_ms.push_back(ms_of(kernel));
    copy_ms.push_back(ms_of(copy));
    ratio.push_back(kernel_ms.back() / copy_ms.back());
  }
  const double ms = median(kernel_ms), moved = bytes * static_cast<double>(values);
  const std::string where = context().device.is_cuda()
                                ? detail::concat(context().device)
                                : detail::concat(context().threads, " thread", context().threads == 1 ? " " : "s");
  std::printf("%-32s %9lld values  %s  %8.3f ms  %6.2f Gvalue/s  %6.1f GB/s  %5.2f x copy\n", name.c_str(),
              static_cast<long long>(values), where.c_str(), ms, 1e-6 * static_cast<double>(values) / ms,
              1e-6 * moved / ms, median(ratio));
  std::fflush(stdout);
  if (json)
    bench::JsonLine()
        .add("name", name)
        .add("values", static_cast<double>(values))
        .add("bytes_per_value", bytes)
        .add("ms", ms)
        .add("gb_per_s", 1e-6 * moved / ms)
        .add("copy_gb_per_s", 1e-6 * moved / median(copy_ms))
        .add("of_copy", median(ratio))
        .print();
}

template <class Moment, class Error>
struct BirderArrays {
  explicit BirderArrays(int64_t values)
      : g(values), m(values), b(values), e(values), words(values / 32), not_finite(1) {
    g.set(uniform_values(values));
  }
  void step(uint32_t t) {
    const birder::QuantizerRng rng{birder::Quantizer::random, 3, t, Purpose::worker_sign, 0, 0};
    on_device(g.bytes(), [&](auto device) {
      birder::worker_step(device, g.data(), birder::WorkerState<Moment, Error>{m.data(), b.data(), nullptr, e.data()},
                          words.data(), g.size(), g.size(), {0.95f, 0.05f, 1e-8f, true}, rng, not_finite.data());
    });
  }
  Array<float> g;
  Array<Moment> m, b;
  Array<Error> e;
  Array<uint32_t> words;
  Array<uint64_t> not_finite;
};

template <class Moment, class Error>
void check_birder() {
  BirderArrays<Moment, Error> arrays(32 * 1000);
  const std::vector<float> g = arrays.g.here();
  std::vector<reference::WorkerValue<float>> values(g.size());
  reference::Options options{.beta = 0.95f, .o = 0.05f, .eps = 1e-8f};
  options.bf16_moments = sizeof(Moment) == 2, options.int8_errors = sizeof(Error) == 1;
  for (uint32_t t = 1; t <= 3; ++t) {
    arrays.step(t);
    const std::vector<Moment> m = arrays.m.here();
    const std::vector<Error> errors = arrays.e.here();
    const std::vector<uint32_t> words = arrays.words.here();
    check(arrays.not_finite.here()[0] == 0, "bench: a gradient is not finite");
    const birder::QuantizerRng rng{birder::Quantizer::random, 3, t, Purpose::worker_sign, 0, 0};
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t element = static_cast<int64_t>(i);
      const bool plus = reference::worker_value(values[i], g[i], options, rng, element, true).second;
      const float e = sizeof(Error) == 1 ? static_cast<float>(errors[i]) / 64 : static_cast<float>(errors[i]);
      check(reference::bit(words, element) == plus && values[i].e == e && values[i].m == static_cast<float>(m[i]),
            "bench: the kernel differs from scalar code at value ", i, ", step ", t);
    }
  }
}

template <class Moment, class Error>
void time_birder(const std::string& name, int64_t values) {
  BirderArrays<Moment, Error> arrays(values);
  uint32_t t = 0;
  report("birder worker" + name, values, 4.125 + 4 * sizeof(Moment) + 2 * sizeof(Error), [&] { arrays.step(++t); });
  if (sizeof(Moment) != 4) return;
  std::vector<uint32_t> random_words(static_cast<size_t>(values / 32 * kSenders));
  RandomStream random(2, Purpose::test);
  for (uint32_t& word : random_words) word = random.next();
  const Array<uint32_t> words(values / 32 * kSenders);
  words.set(random_words);
  report("birder server, 8 senders" + name, values, 2 * sizeof(Error) + (kSenders + 1) / 8.0, [&] {
    on_device(words.bytes(), [&](auto device) {
      birder::server_step(device, words.data(), kSenders, arrays.e.data(), nullptr, arrays.words.data(), values, values,
                          {birder::Quantizer::random, 3, ++t, Purpose::server_sign, 0, 0});
    });
  });
}

void time_birder(int64_t values) {
  time_birder<float, float>("", values);
  time_birder<float, int8_t>(", int8 e", values);
  time_birder<bf16, float>(", bf16 m b", values);
  time_birder<bf16, int8_t>(", bf16 m b, int8 e", values);
  const Array<float> x(values);
  const Array<uint32_t> words(values / 32);
  words.set(std::vector<uint32_t>(static_cast<size_t>(values / 32), 0x55555555u));
  const auto update = [&](const uint32_t* active) {
    on_device(x.bytes(), [&](auto device) {
      birder::update(device, x.data(), words.data(), active, 0, values, {}, 0.9999f, 1, 1e-3f);
    });
  };
  report("birder update", values, 8.125, [&] { update(nullptr); });
  report("birder update, mask", values, 8.25, [&] { update(words.data()); });
}

// Scaled signs of a sender that also receives its own message, with one scale per block.
struct ScaledSigns {
  ScaledSigns(int64_t values, int64_t block) : x(values), e(values), words(message(values, block)) {
    const int64_t blocks = blocks_of(values, block);
    for (int64_t b = 0; b < blocks; ++b)
      tiles.add(b * block, std::min(block, values - b * block), 32 * blocks + b * block, b, b);
    x.set(uniform_values(values));
  }
  static int64_t blocks_of(int64_t values, int64_t block) { return (values + block - 1) / block; }
  static int64_t message(int64_t values, int64_t block) { return blocks_of(values, block) + (values + 31) / 32; }
  void clear_bits() const {
    const int64_t bytes = (x.size() + 31) / 32 * 4;
    words.bytes().range(words.bytes().bytes() - bytes, bytes).zero();
  }
  void compress() {
    clear_bits();
    const Tensor fault = on_device(x.bytes(), [&](auto device) {
      return compress_signs(device, x.data(), e.data(), tiles, SignScale::l1_mean, words.data());
    });
    check(first_fault(fault) < 0, "bench: finite");
  }
  void expand() {
    on_device(x.bytes(), [&](auto device) { expand_signs(device, words.data(), tiles, x.data()); });
  }
  Array<float> x, e;
  SignTiles tiles;
  Array<uint32_t> words;
};

void check_scaled_signs() {
  constexpr int64_t kValues = 100'003;
  for (const int64_t block : {int64_t{4096}, kValues}) {
    ScaledSigns signs(kValues, block);
    const std::vector<float> x = signs.x.here();
    reference::SignServer<float> server(1, kValues, reference::blocks_of({kValues}, block),
                                        reference::blocks_of({kValues}, block));
    for (int step = 0; step < 3; ++step) {
      signs.x.set(x);
      signs.compress();
      signs.expand();
      check(signs.x.here() == server.mean({x}) && signs.e.here() == server.e[0],
            "bench: scaled signs differ from scalar code");
    }
  }
}

void time_scaled_signs(int64_t values) {
  ScaledSigns signs(values, 4096), one_scale(values, values);
  report("scaled signs, worker", values, 12.125, [&] { signs.compress(); });
  report("same, one scale", values, 20.125, [&] { one_scale.compress(); });
  const int64_t stride = signs.words.size();
  const Array<uint32_t> received(kSenders * stride);
  for (int64_t s = 0; s < kSenders; ++s)
    received.bytes().range(4 * s * stride, 4 * stride).copy_from(signs.words.bytes());
  report("same, server, 8 senders", values, 8 + (kSenders + 1) / 8.0, [&] {
    signs.clear_bits();
    const Tensor fault = on_device(received.bytes(), [&](auto device) {
      return compress_mean_of_signs(device, received.data(), kSenders, stride, signs.e.data(), signs.tiles,
                                    SignScale::l1_mean, signs.words.data());
    });
    check(first_fault(fault) < 0, "bench: finite");
  });
  report("same, expanded", values, 4.125, [&] { signs.expand(); });
}

// Times exchange() and apply() of one bucket on a single rank. Compares the first value with an optimizer of this value
// alone.
void time_optimizer(const std::string& name, double bytes, int64_t values, Communicator& comm) {
  const auto make_buckets = [](int64_t n) {
    Buckets buckets({{"x", Var(Tensor::zeros({n}), true)}}, {1ll << 40, 1ll << 40, 32});
    buckets[0].grad.range(0, n).copy_from(Tensor::of(uniform_values(n), {n}));
    return buckets;
  };
  const OptimizerConfig config = name;
  const bool communicates_itself = config.method().communicates_itself;
  Buckets buckets = make_buckets(values), single = make_buckets(1);
  const auto make = [&](const Buckets& of) {
    return make_optimizer(
        config,
        {.buckets = of, .comm = comm, .exchange = communicates_itself ? nullptr : make_exchange("dense", of, comm, 1)});
  };
  const auto optimizer = make(buckets), one = make(single);
  int64_t t = 0;
  const auto step = [&](Optimizer& method, Bucket& bucket) {
    if (communicates_itself) method.exchange(bucket, comm, {t, 1e-3});
    method.apply(bucket, {t, 1e-3});
  };
  const auto next = [&] {
    ++t;
    step(*optimizer, buckets[0]);
  };
  for (int i = 0; i < 3; ++i) {
    next();
    step(*one, single[0]);
  }
  check(buckets[0].param.item() == single[0].param.item(), "bench: ", name, ": vector and single value differ");
  report(name, values, bytes, next);
}

// Bytes per value of each method on one rank. birder: 28.125 for the worker and 8.125 for the update.
void time_all(int64_t values, Communicator& comm) {
  time_birder(values);
  time_scaled_signs(values);
  for (const auto& [name, bytes] : std::vector<std::pair<const char*, double>>{
           {"sgd", 12}, {"sgdm", 20}, {"adam", 28}, {"adamw", 28}, {"softsignsgd", 28}, {"birder", 36.25}})
    time_optimizer(name, bytes, values, comm);
}

void run(const bench::Settings& settings, Communicator& comm) {
  check_birder<float, float>();
  check_birder<float, int8_t>();
  check_birder<bf16, float>();
  check_birder<bf16, int8_t>();
  check_scaled_signs();
  if (settings.number("values") != 0) return time_all(settings.number("values") / 32 * 32, comm);
  if (context().device.is_cuda()) return time_all(110'000'000, comm);
  for (const int64_t values : {int64_t{1} << 20, int64_t{25} * (1 << 20)}) time_all(values, comm);
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_optim [KEY=VALUE…]\n"
      "Optimizer kernels relative to a copy of as many bytes, after a check against scalar code.\n"
      "keys: only= (part of a name) values= (of each array; default 1 and 25 Mi on the CPU, 110 M on a GPU)\n"
      "      repeats=15 device=cpu json=0 (1: lines of JSON)";
  return bench::run_program(argc, argv, usage, [&] {
    const bench::Settings settings(argc, argv, {{"only", ""}, {"values", "0"}, {"repeats", "15"}});
    only = settings.text("only");
    repeats = settings.number("repeats");
    json = settings.json();
    const auto body = [&](Communicator& comm) { run(settings, comm); };
    settings.run_alone(1, body);
    if (settings.text("device") == "cpu" && hardware_threads() > 1) settings.run_alone(hardware_threads(), body);
  });
}
