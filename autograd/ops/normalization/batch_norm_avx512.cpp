#include "autograd/ops/normalization/batch_norm_avx512.h"

#include <algorithm>

#include "engine/check.h"
#include "engine/vector_loop.h"

#ifdef __x86_64__
#include <immintrin.h>

#define GODWIT_BF16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace godwit::detail {
namespace {

constexpr int64_t kStep = 32;

GODWIT_BF16 inline __m512 load(const bf16* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xFFFF, _mm512_maskz_cvtepu16_epi32(0xFFFF, bits), 16));
}

// The instruction flushes subnormal numbers to zero. Vectors with a subnormal number are rounded by bf16() instead.
GODWIT_BF16 inline void store(bf16* to, __m512 low, __m512 high) {
  constexpr int kSubnormal = 0x20;
  if (__builtin_expect(_mm512_fpclass_ps_mask(low, kSubnormal) | _mm512_fpclass_ps_mask(high, kSubnormal), 0)) {
    alignas(64) float values[kStep];
    _mm512_store_ps(values, low);
    _mm512_store_ps(values + 16, high);
    for (int i = 0; i < kStep; ++i) to[i] = static_cast<bf16>(values[i]);
    return;
  }
  _mm512_storeu_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
}

GODWIT_BF16 inline void add(float* to, __m512 v) { _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), v)); }
GODWIT_BF16 inline __m512 four(__m512 a, __m512 b, __m512 c, __m512 d) {
  return _mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d));
}

template <bool relu, bool residual>
GODWIT_BF16 void normalize(const NormPass& p, int64_t begin, int64_t end) {
  const bf16 *x = p.x + begin, *plus = residual ? p.other + begin : nullptr;
  bf16* y = p.to + begin;
  const float *mean = p.mean, *scale = p.scale, *beta = p.beta;
  const auto value = [&](int64_t l) GODWIT_BF16 {
    __m512 v = _mm512_sub_ps(load(x + l), _mm512_loadu_ps(mean + l));
    v = _mm512_add_ps(_mm512_mul_ps(v, _mm512_loadu_ps(scale + l)), _mm512_loadu_ps(beta + l));
    if (residual) v = _mm512_add_ps(v, load(plus + l));
    return relu ? _mm512_maskz_max_ps(0xFFFF, _mm512_setzero_ps(), v) : v;  // NaN stays NaN
  };
  for (; begin < end; begin += p.lanes, x += p.lanes, y += p.lanes) {
    for (int64_t l = 0, n = std::min(p.lanes, end - begin); l < n; l += kStep) store(y + l, value(l), value(l + 16));
    if (residual) plus += p.lanes;
  }
}

template <bool relu>
GODWIT_BF16 void input_gradient(const NormPass& p, int64_t begin, int64_t end) {
  const bf16 *x = p.x + begin, *dy = p.other + begin;
  bf16* dx = p.to + begin;
  const float *mean = p.mean, *scale = p.scale, *beta = p.beta, *offset = p.offset, *slope = p.slope;
  const auto value = [&](int64_t l) GODWIT_BF16 {
    const __m512 d = _mm512_sub_ps(load(x + l), _mm512_loadu_ps(mean + l)), s = _mm512_loadu_ps(scale + l);
    __m512 g = load(dy + l);
    if (relu) {
      const __m512 y = _mm512_add_ps(_mm512_mul_ps(d, s), _mm512_loadu_ps(beta + l));
      g = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(y, _mm512_setzero_ps(), _CMP_NLE_UQ), g);
    }
    g = _mm512_sub_ps(_mm512_sub_ps(g, _mm512_loadu_ps(offset + l)), _mm512_mul_ps(_mm512_loadu_ps(slope + l), d));
    return _mm512_mul_ps(s, g);
  };
  for (; begin < end; begin += p.lanes, x += p.lanes, dy += p.lanes, dx += p.lanes)
    for (int64_t l = 0, n = std::min(p.lanes, end - begin); l < n; l += kStep) store(dx + l, value(l), value(l + 16));
}

GODWIT_BF16 void add_squares(const bf16* x, int64_t n, int64_t lanes, const float* center, float* sums,
                             float* squares) {
  for (; n >= 4 * lanes; n -= 4 * lanes, x += 4 * lanes)
    for (int64_t l = 0; l < lanes; l += 16) {
      __m512 d[4];
      for (int r = 0; r < 4; ++r) {
        if (l % kStep == 0) __builtin_prefetch(x + (4 + r) * lanes + l);
        d[r] = _mm512_sub_ps(load(x + r * lanes + l), _mm512_loadu_ps(center + l));
      }
      add(sums + l, four(d[0], d[1], d[2], d[3]));
      for (auto& v : d) v = _mm512_mul_ps(v, v);
      add(squares + l, four(d[0], d[1], d[2], d[3]));
    }
  for (; n > 0; n -= lanes, x += lanes)
    for (int64_t l = 0; l < std::min(lanes, n); l += 16) {
      const __m512 d = _mm512_sub_ps(load(x + l), _mm512_loadu_ps(center + l));
      add(sums + l, d);
      add(squares + l, _mm512_mul_ps(d, d));
    }
}

struct Half {
  __m512 g, d;  // g and d of 16 elements
  __mmask16 passed;
};

template <Mask mask>
GODWIT_BF16 inline Half half(const NormPass& p, const bf16* y, int64_t at, int64_t l) {
  const __m512 d = _mm512_sub_ps(load(p.x + at), _mm512_loadu_ps(p.mean + l)), dy = load(p.other + at);
  if (mask == Mask::none) return {dy, d, 0xFFFF};
  const __m512 out = mask == Mask::output
                         ? load(y + at)
                         : _mm512_add_ps(_mm512_mul_ps(d, _mm512_loadu_ps(p.scale + l)), _mm512_loadu_ps(p.beta + l));
  const __mmask16 passed = _mm512_cmp_ps_mask(out, _mm512_setzero_ps(), _CMP_NLE_UQ);
  return {_mm512_maskz_mov_ps(passed, dy), d, passed};
}

// Both halves of 32 elements.
template <Mask mask>
GODWIT_BF16 inline void both(const NormPass& p, const bf16* y, int64_t at, int64_t l, Half& low, Half& high) {
  const int64_t next = at + 4 * p.lanes;
  __builtin_prefetch(p.x + next);
  __builtin_prefetch(p.other + next);
  if (mask == Mask::output) __builtin_prefetch(y + next);
  low = half<mask>(p, y, at, l);
  high = half<mask>(p, y, at + 16, l + 16);
  if (mask != Mask::output) return;
  const __mmask32 passed = static_cast<__mmask32>(high.passed) << 16 | low.passed;
  _mm512_storeu_si512(p.to + at, _mm512_maskz_mov_epi16(passed, _mm512_loadu_si512(p.other + at)));
}

GODWIT_BF16 inline __m512 product(const Half& h) { return _mm512_mul_ps(h.g, h.d); }

template <Mask mask>
GODWIT_BF16 void add_products(const NormPass& p, const bf16* y, int64_t n, float* sums, float* products) {
  int64_t at = 0;
  for (; n - at >= 4 * p.lanes; at += 4 * p.lanes)
    for (int64_t l = 0; l < p.lanes; l += kStep) {
      Half low[4], high[4];
      for (int r = 0; r < 4; ++r) both<mask>(p, y, at + r * p.lanes + l, l, low[r], high[r]);
      add(sums + l, four(low[0].g, low[1].g, low[2].g, low[3].g));
      add(sums + l + 16, four(high[0].g, high[1].g, high[2].g, high[3].g));
      add(products + l, four(product(low[0]), product(low[1]), product(low[2]), product(low[3])));
      add(products + l + 16, four(product(high[0]), product(high[1]), product(high[2]), product(high[3])));
    }
  for (; at < n; at += p.lanes)
    for (int64_t l = 0, count = std::min(p.lanes, n - at); l < count; l += kStep) {
      Half low, high;
      both<mask>(p, y, at + l, l, low, high);
      add(sums + l, low.g);
      add(sums + l + 16, high.g);
      add(products + l, product(low));
      add(products + l + 16, product(high));
    }
}

}  // namespace

bool fits_norm_avx512(int64_t channels) {
  return channels % kStep == 0 && vector_bits() == 512 && __builtin_cpu_supports("avx512bf16");
}

void add_squares_avx512(const bf16* x, int64_t n, int64_t lanes, const float* center, float* sums, float* squares) {
  add_squares(x, n, lanes, center, sums, squares);
}

void normalize_avx512(const NormPass& pass, bool relu, int64_t begin, int64_t end) {
  if (relu && pass.other) normalize<true, true>(pass, begin, end);
  else if (relu) normalize<true, false>(pass, begin, end);
  else if (pass.other) normalize<false, true>(pass, begin, end);
  else normalize<false, false>(pass, begin, end);
}

void input_gradient_avx512(const NormPass& pass, bool relu, int64_t begin, int64_t end) {
  if (relu) input_gradient<true>(pass, begin, end);
  else input_gradient<false>(pass, begin, end);
}

void add_products_avx512(const NormPass& pass, Mask mask, const bf16* y, int64_t n, float* sums, float* products) {
  if (mask == Mask::none) add_products<Mask::none>(pass, y, n, sums, products);
  else if (mask == Mask::recomputed) add_products<Mask::recomputed>(pass, y, n, sums, products);
  else add_products<Mask::output>(pass, y, n, sums, products);
}

}  // namespace godwit::detail
#else
namespace godwit::detail {
namespace {
[[noreturn]] void no_instructions() { fail("batch_norm: this processor has no AVX512_BF16"); }
}  // namespace
bool fits_norm_avx512(int64_t) { return false; }
void add_squares_avx512(const bf16*, int64_t, int64_t, const float*, float*, float*) { no_instructions(); }
void normalize_avx512(const NormPass&, bool, int64_t, int64_t) { no_instructions(); }
void input_gradient_avx512(const NormPass&, bool, int64_t, int64_t) { no_instructions(); }
void add_products_avx512(const NormPass&, Mask, const bf16*, int64_t, float*, float*) { no_instructions(); }
}  // namespace godwit::detail
#endif
