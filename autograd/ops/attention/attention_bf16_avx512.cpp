// VDPBF16PS adds the products of pairs of bfloat16 values. Each pair is one 32-bit word. Left matrices are rows of
// words. Right matrices [pairs][columns] interleave two rows, or are the transpose of a matrix of words. Queries and
// keys are zero-padded to whole tiles.
#include "autograd/ops/attention/attention_bf16_avx512.h"

#ifdef __x86_64__
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/vector_loop.h"

#if defined(__GNUC__) && !defined(__clang__)  // false warnings about undefined vectors in the compiler's own headers
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define GODWIT_BF16 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]]

namespace godwit::detail {
namespace {

constexpr int64_t kTileRows = 8, kTileColumns = 32, kQueryBlock = 96, kKeyBlock = 128;

constexpr int64_t up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
// Row stride in words for rows of n: an odd number of cache lines, so that columns use all cache sets.
constexpr int64_t padded_stride(int64_t n) { return (up(n, kTileColumns) / 16 | 1) * 16; }

// A matrix of words or floats.
template <class T>
struct Matrix {
  T* data;
  int64_t ld;
  T* row(int64_t i) const { return data + i * ld; }
};
using Words = Matrix<uint32_t>;
using Floats = Matrix<float>;

// c [8, 32] = (add ? c : 0) + a · b for a [8, pairs], or [pairs, 8] when transposed, and b [pairs, 32].
template <bool transposed>
GODWIT_BF16 inline void tile(int64_t pairs, const uint32_t* a, int64_t lda, const uint32_t* b, int64_t ldb, float* c,
                             int64_t ldc, bool add) {
  __m512 sum[kTileRows][2];
  for (int r = 0; r < kTileRows; ++r)
    for (int v = 0; v < 2; ++v) sum[r][v] = add ? _mm512_loadu_ps(c + r * ldc + v * 16) : _mm512_setzero_ps();
  const int64_t across = transposed ? 1 : lda, along = transposed ? lda : 1;
  for (int64_t i = 0; i < pairs; ++i, a += along, b += ldb) {
    const auto low = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b));
    const auto high = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + 16));
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
      const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a[r * across])));
      sum[r][0] = _mm512_dpbf16_ps(sum[r][0], low, x);
      sum[r][1] = _mm512_dpbf16_ps(sum[r][1], high, x);
    }
  }
  for (int r = 0; r < kTileRows; ++r)
    for (int v = 0; v < 2; ++v) _mm512_storeu_ps(c + r * ldc + v * 16, sum[r][v]);
}

// c [m, n] = (add ? c : 0) + op(a) · b; m and n are rounded up to whole tiles.
template <bool transposed>
GODWIT_BF16 void product(int64_t m, int64_t n, int64_t pairs, const Words& a, const Words& b, const Floats& c,
                         bool add) {
  for (int64_t column = 0; column < n; column += kTileColumns)
    for (int64_t i = 0; i < m; i += kTileRows)
      tile<transposed>(pairs, transposed ? a.data + i : a.row(i), a.ld, b.data + column, b.ld, c.row(i) + column, c.ld,
                       add);
}

// Scratch memory of one thread.
class Workspace {
 public:
  explicit Workspace(const std::shared_ptr<Pool>& pool) : pool_(pool) {}
  Words words(int64_t rows, int64_t columns) {
    return {take<uint32_t>(rows * padded_stride(columns)), padded_stride(columns)};
  }
  Floats floats(int64_t rows, int64_t columns) {
    return {take<float>(rows * padded_stride(columns)), padded_stride(columns)};
  }

 private:
  template <class T>
  T* take(int64_t n) {
    return reinterpret_cast<T*>(buffers_.emplace_back(pool_, n * 4).data());
  }
  std::shared_ptr<Pool> pool_;
  std::vector<Buffer> buffers_;
};

// Rows of `width` values of a tensor: rows `index`, or consecutive rows from `first` on.
struct Rows {
  bf16* first;
  int64_t step, width;
  const int32_t* index = nullptr;
  bf16* operator()(int64_t i) const { return first + (index ? index[i] : i) * step; }
};

// to [padded, words per row] = the first n rows, then zeros.
void copy_rows(int64_t n, int64_t padded, const Rows& rows, const Words& to) {
  constexpr int64_t kAhead = 8;  // the row stride defeats the hardware prefetcher
  const int64_t pairs = (rows.width + 1) / 2;
  for (int64_t i = 0; i < padded; ++i) {
    if (i + kAhead < n)
      for (int64_t c = 0; c < rows.width; c += 32) __builtin_prefetch(rows(i + kAhead) + c);
    to.row(i)[pairs - 1] = 0;
    if (i < n) std::memcpy(to.row(i), rows(i), static_cast<size_t>(rows.width) * sizeof(bf16));
    else std::fill_n(to.row(i), pairs, 0u);
  }
}

// to [columns, rows] = the transpose of from [rows, columns]. rows is a multiple of 4; columns are read up to the next
// multiple of 4.
GODWIT_BF16 void transpose(int64_t rows, int64_t columns, const Words& from, const Words& to) {
  const auto load = [](const uint32_t* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); };
  for (int64_t i = 0; i < rows; i += 4)
    for (int64_t c = 0; c < columns; c += 4) {
      const __m128i r0 = load(from.row(i) + c), r1 = load(from.row(i + 1) + c);
      const __m128i r2 = load(from.row(i + 2) + c), r3 = load(from.row(i + 3) + c);
      const __m128i low0 = _mm_unpacklo_epi32(r0, r1), low1 = _mm_unpacklo_epi32(r2, r3);
      const __m128i high0 = _mm_unpackhi_epi32(r0, r1), high1 = _mm_unpackhi_epi32(r2, r3);
      const __m128i out[] = {_mm_unpacklo_epi64(low0, low1), _mm_unpackhi_epi64(low0, low1),
                             _mm_unpacklo_epi64(high0, high1), _mm_unpackhi_epi64(high0, high1)};
      for (int64_t k = 0; k < std::min<int64_t>(4, columns - c); ++k)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to.row(c + k) + i), out[k]);
    }
}

// to [rows / 2, columns] = pairs of rows of `from`, which stores two columns per word; rows is even.
GODWIT_BF16 void interleave(int64_t rows, int64_t columns, const Words& from, const Words& to) {
  alignas(64) static constexpr uint16_t kLow[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                    8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  alignas(64) static constexpr uint16_t kHigh[32] = {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                                                     24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};
  const __m512i low = _mm512_load_si512(kLow), high = _mm512_load_si512(kHigh);
  for (int64_t i = 0; i < rows; i += 2)
    for (int64_t c = 0; c < columns; c += 32) {
      const auto words = static_cast<__mmask16>((uint32_t{1} << std::min<int64_t>(16, (columns - c + 1) / 2)) - 1);
      const __m512i a = _mm512_maskz_loadu_epi32(words, from.row(i) + c / 2);
      const __m512i b = _mm512_maskz_loadu_epi32(words, from.row(i + 1) + c / 2);
      _mm512_storeu_si512(to.row(i / 2) + c, _mm512_permutex2var_epi16(a, low, b));
      _mm512_storeu_si512(to.row(i / 2) + c + 16, _mm512_permutex2var_epi16(a, high, b));
    }
}

// Mask of the lanes below n.
GODWIT_BF16 inline __mmask16 lanes(int64_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xFFFF : (uint32_t{1} << std::max<int64_t>(n, 0)) - 1);
}

// e^x for x at most slightly above 0, as in engine/vector_math.h; NaN stays NaN.
GODWIT_BF16 inline __m512 exp_of(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-87), x);  // returns the second operand if it is NaN
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p0f)), 0);
  const __m512 r =
      _mm512_fnmadd_ps(n, _mm512_set1_ps(-0x1.bd0106p-13f), _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.63p-1f), x));
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0.0013814581f), r, _mm512_set1_ps(0.008368728f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.04166839f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.16666521f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.49999994f));
  p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
  return _mm512_scalef_ps(_mm512_add_ps(p, _mm512_set1_ps(1)), n);
}

// Mask of the lanes from j on, below n, that dropout keeps; all of these lanes if `word` is null.
GODWIT_BF16 inline __mmask16 kept_lanes(const uint32_t* word, int32_t dropped, int64_t j, int64_t n) {
  const __mmask16 there = lanes(n - j);
  if (word == nullptr) return there;
  const __m512i draw = _mm512_srli_epi32(_mm512_maskz_loadu_epi32(there, word + j), 8);
  return _mm512_mask_cmpge_epu32_mask(there, draw, _mm512_set1_epi32(dropped));
}

GODWIT_BF16 inline __m512i bits_of(__m512bh x) { return reinterpret_cast<__m512i>(x); }

// Row i of `to` = factor(i) · row i of `from`, for n rows of to.width values.
template <class Factor>
GODWIT_BF16 void write_rows(int64_t n, const Floats& from, const Rows& to, const Factor& factor) {
  for (int64_t i = 0; i < n; ++i) {
    const __m512 by = _mm512_set1_ps(factor(i));
    for (int64_t c = 0; c < to.width; c += 16) {
      const auto x = _mm512_cvtneps_pbh(_mm512_mul_ps(by, _mm512_loadu_ps(from.row(i) + c)));
      _mm256_mask_storeu_epi16(to(i) + c, lanes(to.width - c), reinterpret_cast<__m256i>(x));
    }
  }
}

class Forward {
 public:
  Forward(const AttentionCall& call, const AttentionTensors& t)
      : call_(call), t_(t), pairs_((call.width + 1) / 2), memory_(call.pool) {}

  void run(const AttentionHead& head) {
    const int64_t n = head.count(), padded = up(n, kTileColumns), width = call_.width;
    const auto keys = [&](const Tensor& x) {
      return Rows{head.keys_of(x.data<bf16>()), call_.key_stride, width, head.attended.data()};
    };
    if (n > 0) {
      copy_rows(n, padded, keys(t_.k), rows_);
      transpose(padded, pairs_, rows_, kt_);
      copy_rows(n, padded, keys(t_.v), rows_);
      interleave(up(n, 2), width, rows_, v_);
    }
    Rows queries{head.queries_of(t_.q.data<bf16>()), call_.query_stride, width};
    Rows out{head.results_of(t_.out.data<bf16>()), head.result_stride(), width};
    for (int64_t first = 0; first < call_.queries; first += kQueryBlock) {
      const int64_t m = std::min(kQueryBlock, call_.queries - first), padded_m = up(m, kTileRows);
      if (n > 0) {
        const int64_t seen = head.seen(first + m - 1);
        copy_rows(m, padded_m, queries, q_);
        product<false>(padded_m, up(seen, kTileColumns), pairs_, q_, kt_, s_, false);
        for (int64_t i = 0; i < m; ++i) probabilities(head, first + i, i, seen);
        product<false>(padded_m, width, (seen + 1) / 2, {reinterpret_cast<uint32_t*>(s_.data), s_.ld}, v_, o_, false);
      }
      for (int64_t i = 0; i < m && n == 0; ++i) std::fill_n(o_.row(i), o_.ld, 0.f), scale_[i] = 0;
      write_rows(m, o_, out, [this](int64_t i) { return scale_[i]; });
      queries.first += kQueryBlock * queries.step, out.first += kQueryBlock * out.step;
    }
  }

 private:
  // Replaces the scores of query i and the first `columns` keys in place by exp(score - largest), or 0 if dropped or
  // not attended, in bfloat16. Sets scale_ of the row to the factor that makes them probabilities.
  GODWIT_BF16 void probabilities(const AttentionHead& head, int64_t i, int64_t row, int64_t columns) {
    const int64_t n = head.seen(i);
    float* s = s_.row(row);
    auto* p = reinterpret_cast<uint16_t*>(s);
    const bool drops = call_.options.dropout > 0;
    const uint32_t* word = drops ? head.dropout_words(i, 0, n, words_) : nullptr;
    const __m512 scale = _mm512_set1_ps(static_cast<float>(call_.scale));
    __m512 most = _mm512_set1_ps(-std::numeric_limits<float>::infinity()), sum = _mm512_setzero_ps();
    for (int64_t j = 0; j < n; j += 16)
      most = _mm512_mask_max_ps(most, lanes(n - j), most, _mm512_mul_ps(scale, _mm512_loadu_ps(s + j)));
    const float largest = _mm512_reduce_max_ps(most);
    const __m512 shift = _mm512_set1_ps(largest);
    for (int64_t j = 0; j < n; j += 16) {
      const __m512 e = _mm512_maskz_mov_ps(lanes(n - j), exp_of(_mm512_fmsub_ps(scale, _mm512_loadu_ps(s + j), shift)));
      sum = _mm512_add_ps(sum, e);
      const __m512 kept = _mm512_maskz_mov_ps(kept_lanes(word, call_.dropped, j, n), e);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + j), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(kept)));
    }
    for (int64_t j = up(n, 16); j < columns; j += 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + j), _mm256_setzero_si256());
    const float total = _mm512_reduce_add_ps(sum);
    head.sums<float>(t_.log_sums)[i] = largest + std::log(total);
    scale_[row] = static_cast<float>(1 / (1 - call_.options.dropout)) / total;
  }

  const AttentionCall& call_;
  const AttentionTensors& t_;
  int64_t pairs_;
  Workspace memory_;
  Words rows_ = memory_.words(up(call_.keys, kTileColumns), pairs_);
  Words kt_ = memory_.words(up(pairs_, 4), call_.keys), v_ = memory_.words(up(call_.keys, 8) / 2, call_.width);
  Words q_ = memory_.words(kQueryBlock, pairs_);
  Floats s_ = memory_.floats(kQueryBlock, call_.keys), o_ = memory_.floats(kQueryBlock, call_.width);
  float scale_[kQueryBlock];
  std::vector<uint32_t> words_;
};

class Backward {
 public:
  Backward(const AttentionCall& call, const AttentionTensors& t, const AttentionGradients& d)
      : call_(call),
        t_(t),
        d_(d),
        pairs_((call.width + 1) / 2),
        queries_(up(call.queries, kTileRows)),
        memory_(call.pool) {}

  // The heads that share keys and values run in order. Their gradients of k and v are summed; the last head writes
  // them.
  void run(const AttentionHead& head) {
    const int64_t n = head.count();
    head_ = &head;
    prepare();
    if (n < call_.keys) clear_masked();
    for (int64_t i = 0; i < call_.queries && n == 0; ++i) std::fill_n(dq_.row(i), dq_.ld, 0.f);
    for (int64_t first = 0; first < n; first += kKeyBlock) block(first, std::min(kKeyBlock, n - first));
    const auto scale = static_cast<float>(call_.scale);
    if (d_.q.defined()) write_rows(call_.queries, dq_, queries(d_.q), [scale](int64_t) { return scale; });
  }

 private:
  Rows queries(const Tensor& x) const { return {head_->queries_of(x.data<bf16>()), call_.query_stride, call_.width}; }
  Rows results(const Tensor& x) const {
    return {head_->results_of(x.data<bf16>()), head_->result_stride(), call_.width};
  }
  Rows keys(const Tensor& x, int64_t first) const {
    return {head_->keys_of(x.data<bf16>()), call_.key_stride, call_.width, head_->attended.data() + first};
  }

  // Prepares q, d_out and delta of all queries.
  GODWIT_BF16 void prepare() {
    copy_rows(call_.queries, queries_, results(t_.out), q_);
    copy_rows(call_.queries, queries_, results(d_.out), g_);
    const float* log_sums = head_->sums<float>(t_.log_sums);
    for (int64_t i = 0; i < queries_; ++i) {
      __m512 sum = _mm512_setzero_ps();
      for (int64_t c = 0; c < pairs_; c += 16) {
        const auto out = reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi32(lanes(pairs_ - c), q_.row(i) + c));
        const auto g = reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi32(lanes(pairs_ - c), g_.row(i) + c));
        sum = _mm512_dpbf16_ps(sum, out, g);
      }
      delta_[i] = _mm512_reduce_add_ps(sum);
      log_sums_[i] = i < call_.queries ? log_sums[i] : std::numeric_limits<float>::infinity();
    }
    copy_rows(call_.queries, queries_, queries(t_.q), q_);
    interleave(queries_, call_.width, q_, q2_);
    interleave(queries_, call_.width, g_, g2_);
  }

  void clear_masked() {
    for (const Tensor& gradient : {d_.k, d_.v})
      for (int64_t j = 0; gradient.defined() && j < call_.keys; ++j)
        std::fill_n(head_->keys_of(gradient.data<bf16>()) + j * call_.key_stride, call_.width, bf16(0));
  }

  // Computes the gradients of n keys from `first` on, and adds their contribution to dq.
  void block(int64_t first, int64_t n) {
    const int64_t width = call_.width, columns = up(n, kTileColumns);
    copy_rows(n, columns, keys(t_.v, first), rows_);
    transpose(columns, pairs_, rows_, vt_);
    copy_rows(n, columns, keys(t_.k, first), rows_);
    transpose(columns, pairs_, rows_, kt_);
    interleave(up(n, 2), width, rows_, k2_);
    const int64_t start = head_->first_query(first, kQueryBlock), row = call_.group() > 1 ? first : 0;
    const Floats dk{dk_.row(row), dk_.ld}, dv{dv_.row(row), dv_.ld};
    for (int64_t i = start; i < queries_; i += kQueryBlock) {
      const int64_t m = std::min(kQueryBlock, queries_ - i);
      product<false>(m, columns, pairs_, {q_.row(i), q_.ld}, kt_, s_, false);
      product<false>(m, columns, pairs_, {g_.row(i), g_.ld}, vt_, ds_, false);
      for (int64_t r = 0; r < m; r += 2) probabilities(i, r, first, n, columns);
      const bool add = i > start || head_->member() > 0;
      product<true>(n, width, m / 2, p2_, {g2_.row(i / 2), g2_.ld}, dv, add);
      product<true>(n, width, m / 2, ds2_, {q2_.row(i / 2), q2_.ld}, dk, add);
      product<false>(m, width, (n + 1) / 2, dsw_, k2_, {dq_.row(i), dq_.ld}, first > 0);
    }
    const auto scale = static_cast<float>(call_.scale), kept = kept_factor();
    if (head_->member() < call_.group() - 1) return;
    if (d_.k.defined()) write_rows(n, dk, keys(d_.k, first), [scale](int64_t) { return scale; });
    if (d_.v.defined()) write_rows(n, dv, keys(d_.v, first), [kept](int64_t) { return kept; });
  }

  float kept_factor() const { return static_cast<float>(1 / (1 - call_.options.dropout)); }

  // For rows r and r + 1 of the queries from i on: p2_ gets the probabilities after dropout and ds2_ the score
  // gradients, in words of query pairs. dsw_ gets the score gradients in words of key pairs.
  GODWIT_BF16 void probabilities(int64_t i, int64_t r, int64_t first, int64_t n, int64_t columns) {
    alignas(64) static constexpr uint16_t kPairs[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i pairs = _mm512_load_si512(kPairs);
    const __m512 scale = _mm512_set1_ps(static_cast<float>(call_.scale)), kept = _mm512_set1_ps(kept_factor());
    const uint32_t* word[2] = {};
    __m512 log_sum[2], delta[2];
    int64_t seen[2];
    for (int k = 0; k < 2; ++k) {
      const int64_t query = i + r + k;
      if (call_.options.dropout > 0 && query < call_.queries)
        word[k] = head_->dropout_words(query, first, n, words_[k]);
      log_sum[k] = _mm512_set1_ps(log_sums_[query]);
      delta[k] = _mm512_set1_ps(delta_[query]);
      seen[k] = head_->seen_of(query, first, n);
    }
    for (int64_t j = 0; j < columns; j += 16) {
      __m512 p[2], ds[2];
      for (int k = 0; k < 2; ++k) {
        const __m512 s = _mm512_loadu_ps(s_.row(r + k) + j), dp = _mm512_loadu_ps(ds_.row(r + k) + j);
        const __mmask16 there = lanes(seen[k] - j);
        const __m512 e = _mm512_maskz_mov_ps(there, exp_of(_mm512_fmsub_ps(scale, s, log_sum[k])));
        const __mmask16 stays = kept_lanes(word[k], call_.dropped, j, n);
        p[k] = _mm512_maskz_mov_ps(stays, e);
        ds[k] = _mm512_maskz_mul_ps(there, e, _mm512_sub_ps(_mm512_maskz_mul_ps(stays, kept, dp), delta[k]));
      }
      const __m512i both = bits_of(_mm512_cvtne2ps_pbh(p[1], p[0])),
                    gradients = bits_of(_mm512_cvtne2ps_pbh(ds[1], ds[0]));
      _mm512_storeu_si512(p2_.row(r / 2) + j, _mm512_permutexvar_epi16(pairs, both));
      _mm512_storeu_si512(ds2_.row(r / 2) + j, _mm512_permutexvar_epi16(pairs, gradients));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(dsw_.row(r) + j / 2), _mm512_castsi512_si256(gradients));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(dsw_.row(r + 1) + j / 2), _mm512_extracti64x4_epi64(gradients, 1));
    }
  }

  const AttentionCall& call_;
  const AttentionTensors& t_;
  const AttentionGradients& d_;
  const AttentionHead* head_ = nullptr;
  int64_t pairs_, queries_;
  Workspace memory_;
  Words q_ = memory_.words(queries_, pairs_), g_ = memory_.words(queries_, pairs_);
  Words q2_ = memory_.words(queries_ / 2, call_.width), g2_ = memory_.words(queries_ / 2, call_.width);
  Floats dq_ = memory_.floats(queries_, call_.width);
  std::vector<float> delta_ = std::vector<float>(queries_), log_sums_ = delta_;  // delta = Σ d_out · out
  Words rows_ = memory_.words(kKeyBlock, pairs_), k2_ = memory_.words(kKeyBlock / 2, call_.width);
  Words kt_ = memory_.words(up(pairs_, 4), kKeyBlock), vt_ = memory_.words(up(pairs_, 4), kKeyBlock);
  Floats s_ = memory_.floats(kQueryBlock, kKeyBlock), ds_ = memory_.floats(kQueryBlock, kKeyBlock);
  Words p2_ = memory_.words(kQueryBlock / 2, kKeyBlock), ds2_ = memory_.words(kQueryBlock / 2, kKeyBlock);
  Words dsw_ = memory_.words(kQueryBlock, kKeyBlock / 2);
  // Number of keys whose gradients are in memory: all keys if several heads share them, otherwise the keys of a block.
  int64_t summed_ = call_.group() > 1 ? up(call_.keys, kTileRows) : kKeyBlock;
  Floats dk_ = memory_.floats(summed_, call_.width), dv_ = memory_.floats(summed_, call_.width);
  std::vector<uint32_t> words_[2];
};

}  // namespace

bool attention_bf16_avx512() { return vector_bits() == 512 && fast_avx512_bf16(); }

void attention_forward_avx512(const AttentionCall& call, const AttentionTensors& t, int64_t begin, int64_t end) {
  Forward forward(call, t);
  for_heads(call, 1, begin, end, [&](const AttentionHead& head) { forward.run(head); });
}

void attention_backward_avx512(const AttentionCall& call, const AttentionTensors& t, const AttentionGradients& d,
                               int64_t begin, int64_t end) {
  Backward backward(call, t, d);
  for_heads(call, call.group(), begin, end, [&](const AttentionHead& head) { backward.run(head); });
}

}  // namespace godwit::detail

#else

namespace godwit::detail {

bool attention_bf16_avx512() { return false; }
void attention_forward_avx512(const AttentionCall&, const AttentionTensors&, int64_t, int64_t) {}
void attention_backward_avx512(const AttentionCall&, const AttentionTensors&, const AttentionGradients&, int64_t,
                               int64_t) {}

}  // namespace godwit::detail

#endif
