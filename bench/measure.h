// What benchmarks of kernels share: inputs, clocks, and the rate of a copy, which bounds whatever moves memory.
#pragma once
#include <algorithm>
#include <ctime>
#include <functional>
#include <vector>

#include "engine/context.h"
#include "engine/philox.h"
#include "engine/tensor.h"

namespace godwit {

// Normal numbers, the same ones again and again.
inline void fill_normal(const Tensor& x, uint64_t seed) {
  static const Tensor some = [] {
    Tensor t({1 << 20});
    RandomStream random(1, Purpose::test);
    for (float& value : t.span<float>()) value = static_cast<float>(random.normal());
    return t;
  }();
  const Tensor source = some.range(static_cast<int64_t>(seed) * 1000, 1000000).to(x.dtype());
  for (int64_t at = 0; at < x.numel(); at += source.numel()) {
    const int64_t count = std::min(source.numel(), x.numel() - at);
    x.range(at, count).copy_from(source.range(0, count));
  }
}

inline Tensor random_tensor(Shape shape, DType dtype, uint64_t seed) {
  const Tensor x(shape, dtype);
  fill_normal(x, seed);
  return x;
}

// Of one thread the time it computed, of more the time that passed.
inline double ms_of(const std::function<void()>& f) {
  const auto clock = context().threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  timespec begin, end;
  clock_gettime(clock, &begin);
  f();
  clock_gettime(clock, &end);
  return static_cast<double>(end.tv_sec - begin.tv_sec) * 1e3 + static_cast<double>(end.tv_nsec - begin.tv_nsec) * 1e-6;
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// The median time of f(set) over at least nine calls, sets taking turns.
template <class Set, class F>
double median_ms(const std::vector<Set>& sets, const F& f) {
  std::vector<double> times;
  f(sets.back());
  while (times.size() < 9)
    for (const Set& s : sets) times.push_back(ms_of([&] { f(s); }));
  return median(times);
}

// Sets of so many bytes each that no cache holds them all.
inline size_t sets_beyond_caches(int64_t bytes) {
  return static_cast<size_t>(std::clamp<int64_t>((int64_t{160} << 20) / bytes, 2, 32));
}

// Bytes read and written per ms by a copy from memory to memory.
inline double copy_rate() {
  struct Pair {
    Tensor from, to;
  };
  const Shape shape{int64_t{13} << 20};
  const std::vector<Pair> pairs{{random_tensor(shape, DType::f32, 1), Tensor::zeros(shape)}};
  return 2 * static_cast<double>(pairs[0].from.bytes()) /
         median_ms(pairs, [](const Pair& p) { p.to.copy_from(p.from); });
}

}  // namespace godwit
