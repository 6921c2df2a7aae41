#include "autograd/ops/rotary.h"
#include "engine/cuda/rows.h"

namespace godwit {
namespace {

using detail::load_pack, detail::Pack, detail::store_pack;

// One thread per n pairs of columns, `half` apart. The tables begin at the position of the first row; `row_packs` and
// `half_packs` are the packs of pairs in a row and in a head.
template <int n, class T, class C = compute_t<T>>
__global__ void rotary_kernel(uint32_t packs, uint32_t row_packs, uint32_t half_packs, uint32_t length,
                              const C* cosines, const C* sines, C sign, const T* x, T* y) {
  const int64_t half = int64_t{half_packs} * n;
  for (uint32_t i = grid_thread32(); i < packs; i += grid_threads32()) {
    const uint32_t row = i / row_packs, head = (i - row * row_packs) / half_packs;
    const int64_t before = int64_t{row} * row_packs + int64_t{head} * half_packs, c = (i - before) * n;
    const int64_t at = before * 2 * n + c, entry = row % length * half + c;
    const auto a = load_pack<n>(x + at, 0), b = load_pack<n>(x + at + half, 0);
    const auto cos = load_any<n>(cosines + entry), sin = load_any<n>(sines + entry);
    Pack<T, n> to_a, to_b;
    for (int k = 0; k < n; ++k) {
      const C s = sign * sin.values[k];
      to_a.values[k] = static_cast<T>(C(a.values[k]) * cos.values[k] - C(b.values[k]) * s);
      to_b.values[k] = static_cast<T>(C(b.values[k]) * cos.values[k] + C(a.values[k]) * s);
    }
    store_pack(y + at, to_a);
    store_pack(y + at + half, to_b);
  }
}

}  // namespace

void rotate(Cuda device, const Tensor& x, const RotaryTable& table, int64_t length, int64_t first, bool inverse,
            const Tensor& y) {
  dispatch_float(x.dtype(), "rotary", [&]<class T>() {
    using C = compute_t<T>;
    const int64_t half = table.cos.dim(1);
    const T* from = x.cuda_data<T>();
    T* to = y.cuda_data<T>();
    by_packs<T>(
        half,
        [&]<int n>() {
          const uint32_t packs = index_count("rotary", x.numel() / (2 * n));
          launch(device, "rotary", rotary_kernel<n, T>, blocks_for(device, packs), kBlock, packs, x.dim(1) / (2 * n),
                 half / n, length, table.cos.cuda_data<C>() + first * half, table.sin.cuda_data<C>() + first * half,
                 inverse ? C(-1) : C(1), from, to);
        },
        from, to);
  });
}

}  // namespace godwit
