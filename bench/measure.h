// Helpers of kernel benchmarks: inputs, clocks, and the copy bandwidth, which is an upper bound for memory-bound
// kernels.
#pragma once
#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <span>
#include <vector>

#include "bench/program.h"
#include "engine/context.h"
#include "engine/philox.h"
#include "engine/tensor.h"

namespace godwit {

// Fills x with normally distributed numbers from a repeating sequence.
inline void fill_normal(const Tensor& x, uint64_t seed) {
  static const std::vector<float> some = [] {
    std::vector<float> values(1 << 20);
    RandomStream random(1, Purpose::test);
    for (float& value : values) value = static_cast<float>(random.normal());
    return values;
  }();
  const Tensor source = Tensor::of(std::span(some).subspan(seed * 1000, 1000000), {1000000}).to(x.dtype());
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

// A zero-initialized array of any type on the context's device.
template <class T>
class Array {
 public:
  explicit Array(int64_t size) : bytes_(Tensor::zeros({size * static_cast<int64_t>(sizeof(T))}, DType::u8)) {}
  T* data() const { return static_cast<T*>(bytes_.address()); }
  int64_t size() const { return bytes_.bytes() / static_cast<int64_t>(sizeof(T)); }
  const Tensor& bytes() const { return bytes_; }
  void set(const std::vector<T>& values) const {
    const auto* from = reinterpret_cast<const uint8_t*>(values.data());
    bytes_.copy_from(Tensor::of(std::span(from, values.size() * sizeof(T)), bytes_.shape()));
  }
  std::vector<T> here() const {
    const Tensor copy = bytes_.to(kCpu);
    const T* from = static_cast<const T*>(copy.address());
    return {from, from + size()};
  }

 private:
  Tensor bytes_;
};

// Time of one call in ms. With one thread, it is CPU time, otherwise wall time. On a GPU, it is the mean of ten
// consecutive calls.
inline double ms_of(const std::function<void()>& f) {
  const bool on_gpu = context().device.is_cuda();
  const auto clock = context().threads == 1 && !on_gpu ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  const int calls = on_gpu ? 10 : 1;
  timespec begin, end;
  synchronize();
  clock_gettime(clock, &begin);
  for (int i = 0; i < calls; ++i) f();
  synchronize();
  clock_gettime(clock, &end);
  const auto ms = [](const timespec& at) {
    return static_cast<double>(at.tv_sec) * 1e3 + static_cast<double>(at.tv_nsec) * 1e-6;
  };
  return (ms(end) - ms(begin)) / calls;
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

// The median time of f(set) in ms, over at least nine calls that cycle through the sets.
template <class Set, class F>
double median_ms(const std::vector<Set>& sets, const F& f) {
  std::vector<double> times;
  f(sets.back());
  while (times.size() < 9)
    for (const Set& s : sets) times.push_back(ms_of([&] { f(s); }));
  return median(times);
}

// Number of sets of `bytes` bytes each that together exceed all caches.
inline size_t sets_beyond_caches(int64_t bytes) {
  return static_cast<size_t>(std::clamp<int64_t>((int64_t{160} << 20) / bytes, 2, 32));
}

// Copy bandwidth of main memory: bytes read and written per ms.
inline double copy_rate() {
  struct Pair {
    Tensor from, to;
  };
  const Shape shape{int64_t{13} << 20};
  const std::vector<Pair> pairs{{random_tensor(shape, DType::f32, 1), Tensor::zeros(shape)}};
  return 2 * static_cast<double>(pairs[0].from.bytes()) /
         median_ms(pairs, [](const Pair& p) { p.to.copy_from(p.from); });
}

// Throws unless y[i] is formula(i) up to rounding for all i.
inline void check_elements(const char* name, const Tensor& y, const std::function<double(int64_t)>& formula) {
  for (int64_t i = 0; i < y.numel(); ++i)
    check(std::abs(y.item(i) - formula(i)) <= 1e-6 * (1 + std::abs(formula(i))), name, ": element ", i, " is ",
          y.item(i));
}

// Calls f(dtype) with the numbers of threads in argv (1 and 2 if there are none), each with float32 and bfloat16.
inline void for_threads_and_types(int argc, char** argv, const std::function<void(DType)>& f) {
  std::vector<int> threads;
  for (int i = 1; i < argc; ++i) threads.push_back(static_cast<int>(bench::whole_number(argv[i], "THREADS")));
  if (threads.empty()) threads = {1, 2};
  for (const int count : threads)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Context next = context();
      next.threads = count;
      const ContextGuard guard(next);
      f(dtype);
    }
}

}  // namespace godwit
