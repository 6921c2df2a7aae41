// Elementwise updates of several arrays in place. One formula serves the CPU and GPUs.
#pragma once
#include <cstdint>
#include <type_traits>
#include <vector>

#include "engine/device.h"
#include "engine/vector_loop.h"

namespace godwit {

namespace detail {

template <class T>
GODWIT_INLINE inline void store(T* to, T value) {
  *to = value;
}
template <class T>
GODWIT_INLINE inline void store(const T*, T) {}  // read-only array

template <class F, class... T>
GODWIT_INLINE inline void update_element(const F& f, int64_t i, T*... at) {
  const auto update = [&](std::remove_const_t<T>... values) GODWIT_INLINE {
    f(i, values...);
    (store(at + i, values), ...);
  };
  update(at[i]...);
}

}  // namespace detail

// Calls f(i, at[i]…) for i in [begin, end), on several threads. f is a functor with a const GODWIT_INLINE operator()
// that takes the elements to update by reference. A read-only array may equal one of the updated arrays.
template <class F, class... T>
void update_each(Cpu, const char*, int64_t begin, int64_t end, F f, T*... at) {
  const auto range = [=](int64_t first, int64_t last) GODWIT_INLINE {
    GODWIT_IN_PLACE
    for (int64_t i = begin + first; i < begin + last; ++i) detail::update_element(f, i, at...);
  };
  const auto run = [&, bits = detail::vector_bits()](int64_t first, int64_t last) {
    detail::run_wide(bits, range, first, last);
  };
  parallel_for(end - begin, 1 << 15, run, 32);
}

// Defined in engine/cuda/update.h. A .cu file instantiates it for each formula. `operation` names the kernel in errors.
template <class F, class... T>
void update_each(Cuda device, const char* operation, int64_t begin, int64_t end, F f, T*... at);

// Like update_each(), with two alternating formulas: `first` on [begin, bounds[0]), `second` on [bounds[0], bounds[1]),
// and so on. The bounds are in order within [begin, end]. Parts may be empty. On a GPU, one launch handles up to 255
// bounds.
template <class F, class... T>
void update_by_turns(Cpu device, const char* operation, int64_t begin, int64_t end, const std::vector<int64_t>& bounds,
                     F first, F second, T*... at) {
  for (size_t i = 0; i <= bounds.size(); ++i)
    update_each(device, operation, i == 0 ? begin : bounds[i - 1], i == bounds.size() ? end : bounds[i],
                i % 2 == 0 ? first : second, at...);
}

// Defined in engine/cuda/update.h, like update_each().
template <class F, class... T>
void update_by_turns(Cuda device, const char* operation, int64_t begin, int64_t end, const std::vector<int64_t>& bounds,
                     F first, F second, T*... at);

}  // namespace godwit
