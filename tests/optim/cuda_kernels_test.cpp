// The optimizers' kernels on a GPU must match the CPU bit for bit.
#include <cmath>
#include <limits>

#include "engine/update_each.h"
#include "optim/adam.h"
#include "optim/clip.h"
#include "optim/kernels/birder_kernels.h"
#include "optim/kernels/one_bit_kernels.h"
#include "optim/lamb.h"
#include "optim/sgd.h"
#include "optim/softsign.h"
#include "tests/gpu_memory.h"

namespace godwit {
namespace cuda_kernels_test {

template <class T>
std::vector<T> sizes_of(std::vector<T> values) {
  for (T& value : values) value = std::abs(value);
  return values;
}

class CudaOptimizers : public OnGpu {
 protected:
  Cuda device() const { return cuda_of(cuda_device(0)); }
};

struct Range {
  int64_t n, begin, end;
};
const std::vector<Range> kRanges{{1, 0, 1}, {37, 0, 37}, {1000, 3, 997}, {5000, 4, 4999}, {64, 17, 17}};

// Bounds for update_by_turns(): distances of 1 to 12, and a long last turn; more than one launch takes if the range is
// long.
std::vector<int64_t> bounds_within(int64_t begin, int64_t end) {
  std::vector<int64_t> bounds;
  for (int64_t at = begin + 1; at < std::min(end, begin + 4000); at += 1 + std::ssize(bounds) * 5 % 12)
    bounds.push_back(at);
  return bounds;
}

// Runs two steps of one kernel on the CPU and the GPU with the same x, two states and g. call(device, x, s, t, g,
// range).
template <class T, class Call>
void compare_updates(Cuda device, const Call& call) {
  for (const Range& range : kRanges)
    for (const int64_t shift : {0, 1}) {  // offset of g; 1: only g is not aligned to 16 bytes
      SCOPED_TRACE(testing::Message() << "[" << range.begin << ", " << range.end << ") of " << range.n << ", g + "
                                      << shift);
      auto x = random_values<T>(range.n, 1), s = random_values<T>(range.n, 2),
           t = sizes_of(random_values<T>(range.n, 3));
      const There<T> on_x(x), on_s(s), on_t(t);
      for (uint32_t step = 4; step < 6; ++step) {
        const auto g = random_values<T>(range.n + shift, step);
        const There<T> on_g(g);
        call(Cpu{}, x.data(), s.data(), t.data(), g.data() + shift, range);
        call(device, on_x.data(), on_s.data(), on_t.data(), on_g.data() + shift, range);
      }
      expect_same(on_x, x, "x");
      expect_same(on_s, s, "the first state");
      expect_same(on_t, t, "the second state");
    }
}

template <class T>
void compare_optimizers(Cuda device) {
  const auto r = [](double value) { return static_cast<T>(value); };
  const auto with = [&](auto&& step) {
    compare_updates<T>(device, [&](auto where, T* x, T* s, T* t, const T* g, const Range& range) {
      step(where, x, s, t, g, range.begin, range.end);
    });
  };
  for (const bool nesterov : {false, true})
    with([&](auto where, T* x, T* s, T*, const T* g, int64_t begin, int64_t end) {
      update_by_turns(where, "sgdm", begin, end, bounds_within(begin, end),
                      MomentumUpdate<T>{r(0.1), r(1e-4), r(0.9), nesterov},
                      MomentumUpdate<T>{r(0.1), r(0), r(0.9), nesterov}, x, s, g);
    });
  with([&](auto where, T* x, T*, T*, const T* g, int64_t begin, int64_t end) {
    update_by_turns(where, "sgd", begin, end, {}, SgdUpdate<T>{r(0.1), r(1e-4)}, SgdUpdate<T>{r(7), r(7)}, x, g);
  });
  for (const bool decoupled : {false, true})
    with([&](auto where, T* x, T* s, T* t, const T* g, int64_t begin, int64_t end) {
      const MomentsUpdate<T> moments(Adam::Options{}, std::sqrt(1 - 0.999 * 0.999));
      const AdamUpdate<T> update{moments, r(1e-3 / 0.19), r(decoupled ? 0 : 0.01), r(decoupled ? 0.99999 : 1)};
      AdamUpdate<T> other = update;
      other.l2 = 0, other.keep = 1;
      update_by_turns(where, "adam", begin, end, bounds_within(begin, end), update, other, x, s, t, g);
    });
  with([&](auto where, T* x, T* s, T* t, const T* g, int64_t begin, int64_t end) {
    const SoftSignUpdate<T> update{r(1e-3), r(0.9999), r(0.95), r(1 - 0.95), r(1e-8)};
    SoftSignUpdate<T> other = update;
    other.keep = 1;
    update_by_turns(where, "softsignsgd", begin, end, bounds_within(begin, end), update, other, x, s, t, g);
  });
}

TEST_F(CudaOptimizers, UpdatesMatchTheCpuBitForBit) {
  on_gpu([&] { compare_optimizers<float>(device()); });
  on_gpu([&] { compare_optimizers<double>(device()); });
}

// More parts than one launch takes; the first 301 and some of the others are empty.
template <class T>
void compare_turns(Cuda device) {
  const SgdUpdate<T> first{static_cast<T>(0.1), 0}, second{static_cast<T>(7), static_cast<T>(1e-4)};
  for (const Range& range : kRanges) {
    SCOPED_TRACE(testing::Message() << "[" << range.begin << ", " << range.end << ") of " << range.n);
    std::vector<int64_t> bounds(301, range.begin);
    for (const int64_t bound : bounds_within(range.begin, range.end))
      bounds.insert(bounds.end(), bound % 3 == 0 ? 2 : 1, bound);
    bounds.push_back(range.end);
    const auto g = random_values<T>(range.n, 6);
    auto x = random_values<T>(range.n, 7);
    const There<T> on_g(g), on_x(x);
    update_by_turns(Cpu{}, "sgd", range.begin, range.end, bounds, first, second, x.data(), g.data());
    update_by_turns(device, "sgd", range.begin, range.end, bounds, first, second, on_x.data(),
                    static_cast<const T*>(on_g.data()));
    expect_same(on_x, x, "x");
  }
}

TEST_F(CudaOptimizers, EmptyTurnsMatchTheCpuBitForBit) {
  on_gpu([&] { compare_turns<float>(device()); });
  on_gpu([&] { compare_turns<double>(device()); });
}

const std::vector<int64_t> kCounts{0, 1, 31, 32, 33, 1000, 1025, 4097};

int64_t padded(int64_t count) { return (count + 31) / 32 * 32 + 64; }

struct WorkerCase {
  birder::Quantizer quantizer = birder::Quantizer::random;
  bool feedback = true, b_hat = false, mask = false;
  int nodes = 1;
};

// Runs three steps of one worker; compares all state and the words after each.
template <class Moment, class Error>
void compare_worker(Cuda device, const WorkerCase& c, int64_t count, int64_t element) {
  SCOPED_TRACE(testing::Message() << count << " values from element " << element << ", " << sizeof(Moment)
                                  << " bytes a moment, " << sizeof(Error) << " an error, b_hat " << c.b_hat << ", mask "
                                  << c.mask << ", feedback " << c.feedback);
  const int64_t length = padded(count), words = length / 32;
  std::vector<Moment> m(static_cast<size_t>(length)), b(m), b_hat(m);
  std::vector<Error> e(static_cast<size_t>(length));
  const std::vector<uint32_t> active = random_bits(words, 1);
  const There<Moment> on_m(m), on_b(b), on_b_hat(b_hat);
  const There<Error> on_e(e);
  const There<uint32_t> on_active(active);
  const There<uint64_t> fault(std::vector<uint64_t>(1));
  for (uint32_t step = 1; step <= 3; ++step) {
    const auto g = random_values<float>(length, step);
    const There<float> on_g(g);
    std::vector<uint32_t> bits(static_cast<size_t>(words), 0xDEADBEEF);
    const There<uint32_t> on_bits(bits);
    const birder::WorkerSettings settings{0.95f, static_cast<float>(1 - 0.95), 1e-8f, step > 2, c.nodes};
    const birder::QuantizerRng rng{c.quantizer, 0x123456789ABCDEFu, step, Purpose::worker_sign, 3, element};
    ASSERT_TRUE(birder::worker_step(
        g.data(),
        birder::WorkerState<Moment, Error>{m.data(), b.data(), c.b_hat ? b_hat.data() : nullptr,
                                           c.feedback ? e.data() : nullptr, c.mask ? active.data() : nullptr},
        bits.data(), count, length, settings, rng));
    birder::worker_step(device, on_g.data(),
                        birder::WorkerState<Moment, Error>{
                            on_m.data(), on_b.data(), c.b_hat ? on_b_hat.data() : nullptr,
                            c.feedback ? on_e.data() : nullptr, c.mask ? on_active.data() : nullptr},
                        on_bits.data(), count, length, settings, rng, fault.data());
    expect_same(on_bits, bits, "words");
    expect_same(on_m, m, "m");
    expect_same(on_b, b, "b");
    expect_same(on_b_hat, b_hat, "b_hat");
    expect_same(on_e, e, "e");
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_EQ(fault.here()[0], 0u);
}

template <class Moment, class Error>
void compare_workers(Cuda device) {
  using birder::Quantizer;
  for (const WorkerCase& c :
       {WorkerCase{}, WorkerCase{.feedback = false}, WorkerCase{.quantizer = Quantizer::sign},
        WorkerCase{.b_hat = true}, WorkerCase{.b_hat = true, .mask = true}, WorkerCase{.mask = true, .nodes = 5}})
    for (const int64_t count : kCounts)
      compare_worker<Moment, Error>(device, c, count, count % 2 == 0 ? 0 : (int64_t{1} << 33) - 5);
  for (const int64_t element : {1, 2, 3, 4}) compare_worker<Moment, Error>(device, {}, 100, element);
}

TEST_F(CudaOptimizers, BirdersWorkerStepMatchesTheCpuBitForBit) {
  on_gpu([&] {
    compare_workers<float, float>(device());
    compare_workers<float, int8_t>(device());
    compare_workers<bf16, float>(device());
    compare_workers<bf16, int8_t>(device());
  });
}

TEST_F(CudaOptimizers, BirdersWorkerStepAcceptsUnalignedMemory) {
  on_gpu([&] {
    const int64_t count = 133, length = 160;
    const auto g = random_values<float>(length + 1, 5);
    std::vector<float> m(static_cast<size_t>(length + 1)), b(m), e(m);
    const There<float> on_g(g), on_m(m), on_b(b), on_e(e);
    std::vector<uint32_t> bits(5);
    const There<uint32_t> on_bits(bits);
    const There<uint64_t> fault(std::vector<uint64_t>(1));
    const birder::WorkerSettings settings{0.9f, 0.1f, 1e-8f, false};
    const birder::QuantizerRng rng{birder::Quantizer::random, 7, 1, Purpose::worker_sign, 0, 8};
    ASSERT_TRUE(birder::worker_step(
        g.data() + 1, birder::WorkerState<float, float>{m.data() + 1, b.data() + 1, nullptr, e.data() + 1}, bits.data(),
        count, length, settings, rng));
    birder::worker_step(device(), on_g.data() + 1,
                        birder::WorkerState<float, float>{on_m.data() + 1, on_b.data() + 1, nullptr, on_e.data() + 1},
                        on_bits.data(), count, length, settings, rng, fault.data());
    expect_same(on_bits, bits, "words");
    expect_same(on_m, m, "m");
    expect_same(on_b, b, "b");
    expect_same(on_e, e, "e");
  });
}

TEST_F(CudaOptimizers, BirdersWorkerStepDetectsNonFiniteGradients) {
  on_gpu([&] {
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()})
      for (const int64_t at : {0, 70, 96, 97}) {  // values from 97 on are padding
        std::vector<float> g(128, 1);
        g[static_cast<size_t>(at)] = bad;
        if (at == 70) g[71] = g[72] = std::numeric_limits<float>::infinity();
        const There<float> on_g(g), m(std::vector<float>(128)), b(std::vector<float>(128)), e(std::vector<float>(128));
        const There<uint32_t> words(std::vector<uint32_t>(4));
        const There<uint64_t> fault(std::vector<uint64_t>(1));
        birder::worker_step(device(), on_g.data(),
                            birder::WorkerState<float, float>{m.data(), b.data(), nullptr, e.data()}, words.data(), 97,
                            128, {0.9f, 0.1f, 1e-8f, false},
                            {birder::Quantizer::random, 7, 1, Purpose::worker_sign, 0, 0}, fault.data());
        const uint64_t key = fault.here()[0];
        if (at == 97) {
          EXPECT_EQ(key, 0u);
          continue;
        }
        const NotFinite found = not_finite_of(key, 97);
        EXPECT_EQ(found.index, at);
        EXPECT_TRUE(std::isnan(bad) ? std::isnan(found.value) : found.value == static_cast<double>(bad)) << at;
      }
  });
}

template <class Error>
void compare_server(Cuda device, int senders, bool feedback, bool mask, int64_t count) {
  SCOPED_TRACE(testing::Message() << senders << " senders, " << count << " values, " << sizeof(Error)
                                  << " bytes per error, feedback " << feedback << ", mask " << mask);
  const int64_t length = padded(count), words = length / 32;
  std::vector<Error> e(static_cast<size_t>(length));
  const std::vector<uint32_t> active = random_bits(words, 1);
  const There<Error> on_e(e);
  const There<uint32_t> on_active(active);
  for (uint32_t step = 1; step <= 3; ++step) {
    const auto sent = random_bits(senders * words, step);
    std::vector<uint32_t> agreed(static_cast<size_t>(words), 0xDEADBEEF);
    const There<uint32_t> on_sent(sent), on_agreed(agreed);
    const auto quantizer = step == 3 ? birder::Quantizer::sign : birder::Quantizer::random;
    const birder::QuantizerRng rng{quantizer, 99, step, Purpose::server_sign, 0, 4 * count + 1};
    birder::server_step(sent.data(), senders, feedback ? e.data() : nullptr, mask ? active.data() : nullptr,
                        agreed.data(), count, length, rng);
    birder::server_step(device, on_sent.data(), senders, feedback ? on_e.data() : nullptr,
                        mask ? on_active.data() : nullptr, on_agreed.data(), count, length, rng);
    expect_same(on_agreed, agreed, "words");
    expect_same(on_e, e, "e");
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST_F(CudaOptimizers, BirdersServerStepMatchesTheCpuBitForBit) {
  on_gpu([&] {
    for (const int senders : {1, 2, 3, 8, 300})
      for (const int64_t count : {1, 33, 1025}) {
        compare_server<float>(device(), senders, true, false, count);
        compare_server<int8_t>(device(), senders, true, false, count);
        compare_server<float>(device(), senders, true, true, count);
        compare_server<int8_t>(device(), senders, true, true, count);
        compare_server<float>(device(), senders, false, true, count);
      }
  });
}

TEST_F(CudaOptimizers, BirdersUpdateAndMaskMatchTheCpuBitForBit) {
  on_gpu([&] {
    for (const Range& range : kRanges)
      for (const bool mask : {false, true}) {
        auto x = random_values<float>(range.n, 1);
        const int64_t words = (range.n + 31) / 32;
        const auto bits = random_bits(words, 2), frozen = random_bits(words, 3);
        auto active = random_bits(words, 4);
        const There<float> on_x(x);
        const There<uint32_t> on_bits(bits), on_frozen(frozen), on_active(active);
        const auto bounds = bounds_within(range.begin, range.end);
        birder::update(Cpu{}, x.data(), bits.data(), mask ? active.data() : nullptr, range.begin, range.end, bounds,
                       0.9f, 1, 1e-3f);
        birder::update(device(), on_x.data(), on_bits.data(), mask ? on_active.data() : nullptr, range.begin, range.end,
                       bounds, 0.9f, 1, 1e-3f);
        expect_same(on_x, x, "x");
        birder::activate(Cpu{}, active.data(), bits.data(), frozen.data(), words);
        birder::activate(device(), on_active.data(), on_bits.data(), on_frozen.data(), words);
        expect_same(on_active, active, "active");
      }
  });
}

TEST_F(CudaOptimizers, OneBitAdamsKernelsMatchTheCpuBitForBit) {
  on_gpu([&] {
    const one_bit::Average average{0.9f, static_cast<float>(1 - 0.9)};
    const auto with = [&](auto&& step) {
      compare_updates<float>(device(), [&](auto where, float* x, float* s, float* t, const float* g,
                                           const Range& range) { step(where, x, s, t, g, range.begin, range.end); });
    };
    with([&](auto where, float* x, float* s, float* t, const float* g, int64_t begin, int64_t end) {
      const one_bit::MomentumUpdate momentum{average};
      const float* m = s;
      update_each(where, "momentum", begin, end, momentum, s, m, g);  // in place, and to another array
      update_each(where, "momentum", begin, end, momentum, x, m, g);
      update_each(where, "variance", begin, end, one_bit::VarianceUpdate{average}, t, g);
      update_each(where, "refresh", begin, end, one_bit::VarianceRefresh{5.3f, 0.7f}, t, g);
      update_each(where, "refresh", begin, end, one_bit::WhereNotZero{}, x, g, m);
    });
    for (const bool keeps_m : {false, true})
      with([&](auto where, float* x, float* s, float* t, const float* g, int64_t begin, int64_t end) {
        const one_bit::FrozenUpdate update{0.999f, 1e-3f, 0.97f, 1e-8f, 1}, other{1, 1e-3f, 0.97f, 1e-8f, 1};
        const auto bounds = bounds_within(begin, end);
        const float* v = t;
        if (keeps_m) update_by_turns(where, "one_bit_adam", begin, end, bounds, update, other, x, s, g, v);
        else update_by_turns(where, "one_bit_adam", begin, end, bounds, update, other, x, g, v);
      });
    with([&](auto where, float* x, float* s, float* t, const float* g, int64_t begin, int64_t end) {
      const float *m = s, *v = t;
      update_each(where, "zero_one_adam", begin, end, one_bit::LocalMomentum{average, 1e-3f}, s, x, g);
      update_by_turns(where, "zero_one_adam", begin, end, bounds_within(begin, end),
                      one_bit::LocalUpdate{0.999f, 1e-3f, 1e-16f, 1}, one_bit::LocalUpdate{1, 1e-3f, 1e-16f, 1}, x, m,
                      v);
    });
  });
}

TEST_F(CudaOptimizers, LateMomentsMatchTheCpuBitForBit) {
  on_gpu([&] {
    for (const Range& range : kRanges) {
      auto e = random_values<float>(range.n, 1), to = random_values<float>(range.n, 2);
      const auto g = random_values<float>(range.n, 3);
      auto v = sizes_of(random_values<float>(range.n, 4));
      for (size_t i = 0; i < v.size(); i += 3) v[i] = 0;
      const There<float> on_e(e), on_to(to), on_g(g), on_v(v);
      const auto update = [&](auto where, float* moments, float* root, const float* gradient, const float* variance) {
        const one_bit::LateMoment late{{0.9f, static_cast<float>(1 - 0.9)}};
        update_each(where, "late", range.begin, range.end, late, moments, gradient, variance);
        for (const bool roots : {false, true})
          update_each(where, "late", range.begin, range.end, one_bit::WhereZero{roots}, root,
                      static_cast<const float*>(moments), variance);
      };
      update(Cpu{}, e.data(), to.data(), g.data(), v.data());
      update(device(), on_e.data(), on_to.data(), static_cast<const float*>(on_g.data()),
             static_cast<const float*>(on_v.data()));
      expect_same(on_e, e, "e");
      expect_same(on_to, to, "roots");
    }
  });
}

// x and base are the same array or two arrays.
TEST_F(CudaOptimizers, ZeroOneAdamsSynchronizationMatchesTheCpuBitForBit) {
  on_gpu([&] {
    for (const Range& range : kRanges)
      for (const bool in_place : {false, true}) {
        auto x = random_values<float>(range.n, 1), base = random_values<float>(range.n, 2);
        auto u = random_values<float>(range.n, 3), m = random_values<float>(range.n, 4);
        const auto v = sizes_of(random_values<float>(range.n, 5));
        const There<float> on_x(x), on_base(base), on_u(u), on_m(m), on_v(v);
        const auto update = [&](auto where, float* to, const float* from, float* a, float* b, const float* c) {
          update_by_turns(where, "zero_one_adam", range.begin, range.end, bounds_within(range.begin, range.end),
                          one_bit::SyncUpdate{0.999f, 0.003f, 1e-16f, 1}, one_bit::SyncUpdate{1, 0.003f, 1e-16f, 1}, to,
                          from, a, b, c);
        };
        update(Cpu{}, x.data(), in_place ? x.data() : base.data(), u.data(), m.data(), v.data());
        update(device(), on_x.data(), in_place ? on_x.data() : on_base.data(), on_u.data(), on_m.data(), on_v.data());
        expect_same(on_x, x, "x");
        expect_same(on_u, u, "u");
        expect_same(on_m, m, "m");
      }
  });
}

template <class T>
void compare_clipping() {
  const int64_t n = 3 * 4096 + 5;
  const Tensor x = Tensor::of(random_values<T>(n, 6), {n}).to(kCpu), y = x.to(cuda_device(0));
  const std::vector<Segment> ranges{{0, 0}, {0, 1}, {1, 20}, {20, 4116}, {4116, 4116}, {4116, n}, {3, n}, {n, n}};
  EXPECT_EQ(detail::sums_of_squares(cuda_of(y.device()), y, ranges), detail::sums_of_squares(Cpu{}, x, ranges));
  const Tensor squares = detail::squares_of_ranges(Cpu{}, x, ranges);
  for (const double limit : {1e-3, 1e9}) {
    const Tensor factor = detail::clip_factor(Cpu{}, squares, limit, 1);
    const Tensor there = detail::clip_factor(cuda_of(y.device()), squares.to(y.device()), limit, 1);
    EXPECT_EQ(there.item(), factor.item());
    EXPECT_EQ(factor.item() < 1, limit < 1);
    detail::scale(Cpu{}, x, factor);
    detail::scale(cuda_of(y.device()), y, there);
    EXPECT_EQ(y.to_vector<T>(), x.to_vector<T>());
  }
  for (const double bad : {1.0, static_cast<double>(INFINITY), std::nan("")}) {
    const Tensor all = Tensor::of(std::vector<double>{0.1, 0.7, bad, 3, bad}, {5}).to(kCpu);
    const Tensor on_gpu = all.to(y.device());
    const Tensor message = detail::norm_message(cuda_of(y.device()), on_gpu).to(kCpu);
    const Tensor expected = detail::norm_message(Cpu{}, all);
    EXPECT_EQ(message.item(1), std::isfinite(bad) ? 5 : 2);
    EXPECT_EQ(message.item(1), expected.item(1));
    if (std::isfinite(bad)) {
      EXPECT_EQ(message.item(0), expected.item(0));
    }
    const Tensor messages = Tensor::of(std::vector<double>{2.5, 5, 0.3, 5, bad, 2}, {3, 2});
    EXPECT_EQ(detail::clip_factor(cuda_of(y.device()), messages.to(y.device()), 0.5, 3).item(),
              detail::clip_factor(Cpu{}, messages.to(kCpu), 0.5, 3).item());
  }
}

TEST_F(CudaOptimizers, ClippingSumsMatchTheCpuBitForBit) {
  on_gpu([] { compare_clipping<float>(); });
  on_gpu([] { compare_clipping<double>(); });
}

}  // namespace cuda_kernels_test
}  // namespace godwit
