#include "autograd/ops/pooling/pool2d_geometry.h"
#include "engine/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "autograd/ops/pooling/max_pool2d.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef GODWIT_MAX_POOL2D_ARGS
#define GODWIT_MAX_POOL2D_ARGS
namespace godwit {
constexpr int64_t kMaxKernel = 16;  // so that a tap fits in one byte
template <class T>
struct MaxPoolForward {
  detail::PoolGeometry g;
  const T* x;
  T* y;
  uint8_t* taps;
};
template <class T>
struct MaxPoolBackward {
  detail::PoolGeometry g;
  const uint8_t* taps;
  const T* dy;
  T* dx;
};
}  // namespace godwit
#endif

HWY_BEFORE_NAMESPACE();
namespace godwit {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Loads and stores vectors of compute_t from and to memory of T, with the rounding of bf16().
template <class D, class T>
HWY_INLINE hn::Vec<D> load(D d, const T* from) {
  if constexpr (std::is_same_v<T, bf16>) {
    const hn::Rebind<uint16_t, D> half;
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::PromoteTo(du, hn::LoadU(half, reinterpret_cast<const uint16_t*>(from)));
    return hn::BitCast(d, hn::ShiftLeft<16>(bits));
  } else {
    return hn::LoadU(d, from);
  }
}

template <class D, class T>
HWY_INLINE void store(D d, hn::Vec<D> v, T* to) {
  if constexpr (std::is_same_v<T, bf16>) {
    const hn::Rebind<uint16_t, D> half;
    const hn::RebindToUnsigned<D> du;
    const auto u = hn::BitCast(du, v);
    const auto up = hn::Add(hn::Set(du, 0x7FFFu), hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u)));
    const auto nan = hn::Or(u, hn::Set(du, 0x400000u));
    const auto rounded = hn::IfThenElse(hn::RebindMask(du, hn::Eq(v, v)), hn::Add(u, up), nan);
    hn::StoreU(hn::TruncateTo(half, hn::ShiftRight<16>(rounded)), half, reinterpret_cast<uint16_t*>(to));
  } else {
    hn::StoreU(v, d, to);
  }
}

// Loads bytes as unsigned integers of the lane size.
template <class DU>
HWY_INLINE hn::Vec<DU> load_taps(DU du, const uint8_t* from) {
  const auto bytes = hn::LoadU(hn::Rebind<uint8_t, DU>(), from);
  if constexpr (sizeof(hn::TFromD<DU>) == 8) return hn::PromoteTo(du, hn::PromoteTo(hn::Rebind<uint32_t, DU>(), bytes));
  else return hn::PromoteTo(du, bytes);
}

// Calls step(d, c) for all channels: whole vectors, then single elements.
template <class T, class Step>
HWY_INLINE void for_channels(int64_t channels, const Step& step) {
  const hn::ScalableTag<compute_t<T>> d;
  const hn::CappedTag<compute_t<T>, 1> one;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) step(d, c);
  for (; c < channels; ++c) step(one, c);
}

// One window: a larger value, or the first NaN, replaces the maximum and its tap.
template <class T>
HWY_INLINE void forward_window(const MaxPoolForward<T>& a, int64_t image, int64_t r, int64_t o) {
  const auto &rows = a.g.rows, &columns = a.g.columns;
  const int64_t i0 = rows.first_tap(r), i1 = rows.end_tap(r), j0 = columns.first_tap(o), j1 = columns.end_tap(o);
  const T* corner = a.x + a.g.pixel(image, r, o, i0, j0);
  const int64_t at = a.g.window(image, r, o), next_row = columns.in * a.g.channels;
  for_channels<T>(a.g.channels, [&](auto d, int64_t c) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> du;
    using Tap = hn::TFromD<decltype(du)>;
    auto best = load(d, corner + c);
    auto where = hn::Set(du, static_cast<Tap>(i0 * rows.kernel + j0));
    for (int64_t i = i0; i < i1; ++i) {
      const T* from = corner + (i - i0) * next_row + c;
      for (int64_t j = j0; j < j1; ++j, from += a.g.channels) {
        const auto v = load(d, from);
        const auto larger = hn::AndNot(hn::Le(v, best), hn::Eq(best, best));
        best = hn::IfThenElse(larger, v, best);
        where = hn::IfThenElse(hn::RebindMask(du, larger), hn::Set(du, static_cast<Tap>(i * rows.kernel + j)), where);
      }
    }
    store(d, best, a.y + at + c);
    const hn::Rebind<uint8_t, decltype(du)> bytes;
    hn::StoreU(hn::TruncateTo(bytes, where), bytes, a.taps + at + c);
  });
}

// A window that covers a pixel: its offset in dy, and the pixel's tap.
struct Cover {
  int64_t at, tap;
};

// One pixel of dx: the sum of dy over the windows, in row order, whose maximum is this pixel.
template <class T>
HWY_INLINE void backward_pixel(const uint8_t* taps, const T* dy, int64_t channels, const Cover* cover, const Cover* end,
                               T* dx) {
  for_channels<T>(channels, [=](auto d, int64_t c) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> du;
    using Tap = hn::TFromD<decltype(du)>;
    auto sum = hn::Zero(d);
    for (const Cover* w = cover; w < end; ++w) {
      const auto tap = hn::Set(du, static_cast<Tap>(w->tap));
      const auto won = hn::RebindMask(d, hn::Eq(load_taps(du, taps + w->at + c), tap));
      sum = hn::Add(sum, hn::IfThenElseZero(won, load(d, dy + w->at + c)));
    }
    store(d, sum, dx + c);
  });
}

template <class T>
HWY_INLINE void forward_rows(const MaxPoolForward<T>& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    for (int64_t o = 0; o < a.g.columns.out; ++o) forward_window(a, row / a.g.rows.out, row % a.g.rows.out, o);
}

template <class T>
HWY_INLINE void backward_rows(const MaxPoolBackward<T>& a, int64_t begin, int64_t end) {
  const auto rows = a.g.rows, columns = a.g.columns;
  const int64_t channels = a.g.channels;
  Cover covers[kMaxKernel * kMaxKernel];
  T* dx = a.dx + begin * columns.in * channels;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t image = row / rows.in, i = row % rows.in;
    const int64_t first_r = rows.first_window(i), end_r = rows.end_window(i);
    int64_t first_o = 0, end_o = 0;  // updated with j, to avoid divisions
    for (int64_t j = 0; j < columns.in; ++j, dx += channels) {
      while (first_o < columns.out && columns.start(first_o) + columns.kernel <= j) ++first_o;
      while (end_o < columns.out && columns.start(end_o) <= j) ++end_o;
      Cover* last = covers;
      for (int64_t r = first_r; r < end_r; ++r)
        for (int64_t o = first_o; o < end_o; ++o)
          *last++ = {a.g.window(image, r, o), (i - rows.start(r)) * rows.kernel + j - columns.start(o)};
      backward_pixel(a.taps, a.dy, channels, covers, last, dx);
    }
  }
}

void forward_f32(const MaxPoolForward<float>& a, int64_t begin, int64_t end) { forward_rows(a, begin, end); }
void forward_bf16(const MaxPoolForward<bf16>& a, int64_t begin, int64_t end) { forward_rows(a, begin, end); }
void forward_f64(const MaxPoolForward<double>& a, int64_t begin, int64_t end) { forward_rows(a, begin, end); }
void backward_f32(const MaxPoolBackward<float>& a, int64_t begin, int64_t end) { backward_rows(a, begin, end); }
void backward_bf16(const MaxPoolBackward<bf16>& a, int64_t begin, int64_t end) { backward_rows(a, begin, end); }
void backward_f64(const MaxPoolBackward<double>& a, int64_t begin, int64_t end) { backward_rows(a, begin, end); }

}  // namespace HWY_NAMESPACE
}  // namespace godwit
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace godwit {
namespace {

HWY_EXPORT(forward_f32);
HWY_EXPORT(forward_bf16);
HWY_EXPORT(forward_f64);
HWY_EXPORT(backward_f32);
HWY_EXPORT(backward_bf16);
HWY_EXPORT(backward_f64);

void run(const MaxPoolForward<float>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(forward_f32)(a, begin, end);
}
void run(const MaxPoolForward<bf16>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(forward_bf16)(a, begin, end);
}
void run(const MaxPoolForward<double>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(forward_f64)(a, begin, end);
}
void run(const MaxPoolBackward<float>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(backward_f32)(a, begin, end);
}
void run(const MaxPoolBackward<bf16>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(backward_bf16)(a, begin, end);
}
void run(const MaxPoolBackward<double>& a, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(backward_f64)(a, begin, end);
}

}  // namespace

void max_pool2d_forward(Cpu, const Tensor& x, const Pool2dOptions& options, const Tensor& y, const Tensor& taps) {
  const detail::PoolGeometry g(x.shape(), y.shape(), options);
  dispatch_float(x.dtype(), "max_pool2d", [&]<class T>() {
    const MaxPoolForward<T> args{g, x.data<T>(), y.data<T>(), taps.data<uint8_t>()};
    parallel_for(g.images * g.rows.out, g.grain(g.columns.out),
                 [&](int64_t begin, int64_t end) { run(args, begin, end); });
  });
}

void max_pool2d_backward(Cpu, const Tensor& taps, const Tensor& dy, const Pool2dOptions& options, const Tensor& dx) {
  check(options.kernel <= kMaxKernel, "max_pool2d: kernel is ", options.kernel, ", at most 16 is supported");
  const detail::PoolGeometry g(dx.shape(), dy.shape(), options);
  dispatch_float(dx.dtype(), "max_pool2d", [&]<class T>() {
    const MaxPoolBackward<T> args{g, taps.data<uint8_t>(), dy.data<T>(), dx.data<T>()};
    parallel_for(g.images * g.rows.in, g.grain(g.columns.in),
                 [&](int64_t begin, int64_t end) { run(args, begin, end); });
  });
}

}  // namespace godwit
#endif
