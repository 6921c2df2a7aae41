// On ResNet-50's layers, with two threads, 7 % faster than oneDNN 2.6's kernel for these instructions.
// dw = Σ over output pixels of dy · x is a matrix product whose sums run over pairs of pixels, as VDPBF16PS takes them.
// Pixels next to each other in a row of the output are interleaved channel by channel, for x once per horizontal tap.
// Panels of a few rows stay in the second-level cache; tiles of 8 outputs × 32 channels of dw stay in registers while
// they take in a panel. A thread has a range of the outputs, or of the channels, to itself: nothing is summed over
// threads.
#include "autograd/ops/conv2d_weights_avx512.h"

#ifdef __x86_64__
#include <immintrin.h>

#include <algorithm>

#include "engine/parallel.h"

#define GODWIT_BF16 [[gnu::target("avx512f,avx512bw,avx512bf16")]]

namespace godwit::detail {
namespace {

constexpr int64_t kTileC = 32, kTileO = 8, kPackO = 32;
constexpr int64_t kApart = 16;              // tiles are no power of two apart, so that caches hold many
constexpr int64_t kBlock = 1024;            // outputs and channels that share panels
constexpr int64_t kPanelBytes = 512 << 10;  // of the second-level cache

struct Span {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// A pointwise convolution has no rows: its pixels are one long row, which pairs up well.
Conv2dShape rows_of(Conv2dShape s) {
  if (s.kh == 1 && s.kw == 1 && s.stride == 1 && s.padding == 0) {
    s.w = s.wo = s.n * s.h * s.w;
    s.n = s.h = s.ho = 1;
  }
  return s;
}

struct Interleaved {
  __m512i low, high;
};
// 32 values of two pixels, null for zeros: a0 b0 a1 b1 …
GODWIT_BF16 inline Interleaved interleave(const uint16_t* a, const uint16_t* b) {
  alignas(64) static constexpr uint16_t kLow[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                    8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  alignas(64) static constexpr uint16_t kHigh[32] = {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                                                     24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};
  const __m512i left = a ? _mm512_loadu_si512(a) : _mm512_setzero_si512();
  const __m512i right = b ? _mm512_loadu_si512(b) : _mm512_setzero_si512();
  return {_mm512_permutex2var_epi16(left, _mm512_load_si512(kLow), right),
          _mm512_permutex2var_epi16(left, _mm512_load_si512(kHigh), right)};
}

GODWIT_BF16 inline void store_half(uint32_t* to, __m256i half) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), half);
}

// A tile of dw and what it takes in: `images` runs of `pairs` pixel pairs.
struct Tile {
  const uint32_t *dy, *x;  // [pairs][8], [pairs][32]
  int64_t pairs, images, dy_image, x_image;
  float* dw;
  int64_t ld;  // of dw, from one output to the next
  bool first;
};

GODWIT_BF16 void multiply(const Tile& t) {
  __m512 sum[kTileO][2];
  for (int i = 0; i < kTileO; ++i)
    for (int j = 0; j < 2; ++j) sum[i][j] = t.first ? _mm512_setzero_ps() : _mm512_loadu_ps(t.dw + i * t.ld + j * 16);
  for (int64_t image = 0; image < t.images; ++image) {
    const uint32_t *dy = t.dy + image * t.dy_image, *x = t.x + image * t.x_image;
    for (int64_t pair = 0; pair < t.pairs; ++pair, dy += kTileO, x += kTileC) {
      const auto x0 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(x));
      const auto x1 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(x + 16));
#pragma GCC unroll 8
      for (int i = 0; i < kTileO; ++i) {
        const auto g = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(dy[i])));
        sum[i][0] = _mm512_dpbf16_ps(sum[i][0], x0, g);
        sum[i][1] = _mm512_dpbf16_ps(sum[i][1], x1, g);
      }
    }
  }
  for (int i = 0; i < kTileO; ++i)
    for (int j = 0; j < 2; ++j) _mm512_storeu_ps(t.dw + i * t.ld + j * 16, sum[i][j]);
}

// Brings the lines of some pixels' channels nearer, a few at a call.
struct Ahead {
  const uint16_t* from;
  int64_t pixels, channels, stride, channel = 0;
  void some(int64_t lines) {
    for (; lines > 0 && pixels > 0; --lines) {
      __builtin_prefetch(from + channel, 0, 2);
      if ((channel += 32) < channels) continue;
      channel = 0;
      from += stride;
      --pixels;
    }
  }
};

// A block of dw: outputs `o` and channels `c`, one panel of pixels after another.
class Block {
 public:
  Block(const Conv2dShape& s, Span o, Span c) : s_(s), o_(o), c_(c) {
    // A panel is some pairs of one long row, some rows of an image, or some images.
    pairs_ = (s.wo + 1) / 2;
    const auto bytes = [&](int64_t rows) {
      return 4 * pairs_ * (rows * o_.size() + s.stride * phase_rows(rows) * s.kw * c_.size());
    };
    if (s.ho == 1 && s.n == 1)
      pairs_ = std::min(pairs_, std::max<int64_t>(16, kPanelBytes / (4 * (o_.size() + c_.size()))));
    rows_ = s.ho;
    while (rows_ > 1 && bytes(rows_) > kPanelBytes) rows_ = (rows_ + 1) / 2;
    if (rows_ == s.ho) images_ = std::clamp<int64_t>(kPanelBytes / bytes(rows_), 1, s.n);
    dy_image_ = rows_ * pairs_ * kTileO;
    x_image_ = s.kw * s.stride * phase_rows(rows_) * pairs_ * kTileC;
    dy_tile_ = images_ * dy_image_ + kApart;
    x_tile_ = images_ * x_image_ + kApart;
    dy_ = Tensor({o_.size() / kTileO * dy_tile_}, DType::u32);
    x_ = Tensor({c_.size() / kTileC * x_tile_}, DType::u32);
  }

  void run(const uint16_t* x, const uint16_t* dy, float* dw) {
    bool first = true;
    for (int64_t image = 0; image < s_.n; image += images_)
      for (int64_t row = 0; row < s_.ho; row += rows_)
        for (int64_t column = 0; column < s_.wo; column += 2 * pairs_, first = false) {
          at_ = {image, std::min(images_, s_.n - image), row, std::min(rows_, s_.ho - row), column};
          pack_dy(dy);
          pack_x(x);
          multiply_all(x, dy, dw, first);
        }
  }

 private:
  int64_t in_rows(int64_t rows) const { return (rows - 1) * s_.stride + s_.kh; }
  int64_t phase_rows(int64_t rows) const { return (in_rows(rows) + s_.stride - 1) / s_.stride; }
  uint32_t* dy_panel(int64_t o) const { return dy_.data<uint32_t>() + (o - o_.begin) / kTileO * dy_tile_; }
  uint32_t* x_panel(int64_t c) const { return x_.data<uint32_t>() + (c - c_.begin) / kTileC * x_tile_; }
  // Input rows a stride apart follow each other, so that a tap sees its rows in one run.
  int64_t x_row(int64_t tap, int64_t row) const {
    return ((tap * s_.stride + row % s_.stride) * phase_rows(rows_) + row / s_.stride) * pairs_ * kTileC;
  }

  GODWIT_BF16 void pack_dy(const uint16_t* dy) const {
    for (int64_t line = 0; line < at_.images * at_.rows; ++line) {
      const int64_t image = line / at_.rows, row = line % at_.rows;
      const uint16_t* from = dy + ((at_.image + image) * s_.ho + at_.row + row) * s_.wo * s_.o;
      const int64_t to = image * dy_image_ + row * pairs_ * kTileO;
      for (int64_t pair = 0; pair < pairs_; ++pair) {
        const int64_t left = at_.column + 2 * pair, right = left + 1;
        for (int64_t o = o_.begin; o < o_.end; o += kPackO) {
          const auto [low, high] = interleave(left < s_.wo ? from + left * s_.o + o : nullptr,
                                              right < s_.wo ? from + right * s_.o + o : nullptr);
          uint32_t* panel = dy_panel(o) + to + pair * kTileO;
          store_half(panel, _mm512_maskz_extracti64x4_epi64(0xF, low, 0));
          store_half(panel + dy_tile_, _mm512_maskz_extracti64x4_epi64(0xF, low, 1));
          store_half(panel + 2 * dy_tile_, _mm512_maskz_extracti64x4_epi64(0xF, high, 0));
          store_half(panel + 3 * dy_tile_, _mm512_maskz_extracti64x4_epi64(0xF, high, 1));
        }
      }
    }
  }

  GODWIT_BF16 void pack_x(const uint16_t* x) const {
    const int64_t in = in_rows(at_.rows);
    for (int64_t line = 0; line < at_.images * in; ++line) {
      const int64_t image = line / in, row = line % in, y = at_.row * s_.stride - s_.padding + row;
      const bool inside = y >= 0 && y < s_.h;
      const uint16_t* from = x + ((at_.image + image) * s_.h + y) * s_.w * s_.c;
      for (int64_t tap = 0; tap < s_.kw; ++tap) {
        const int64_t to = image * x_image_ + x_row(tap, row);
        for (int64_t pair = 0; pair < pairs_; ++pair) {
          const auto pixel = [&](int64_t output) {
            const int64_t at = output * s_.stride - s_.padding + tap;
            return inside && output < s_.wo && at >= 0 && at < s_.w ? from + at * s_.c : nullptr;
          };
          const uint16_t *left = pixel(at_.column + 2 * pair), *right = pixel(at_.column + 2 * pair + 1);
          for (int64_t c = c_.begin; c < c_.end; c += kTileC) {
            const auto [low, high] = interleave(left ? left + c : nullptr, right ? right + c : nullptr);
            uint32_t* panel = x_panel(c) + to + pair * kTileC;
            _mm512_storeu_si512(panel, low);
            _mm512_storeu_si512(panel + 16, high);
          }
        }
      }
    }
  }

  // While a panel is multiplied, the pixels behind it are fetched.
  void multiply_all(const uint16_t* x, const uint16_t* dy, float* dw, bool first) const {
    const int64_t taps = s_.kh * s_.kw;
    const int64_t out = ((at_.image * s_.ho + at_.row) * s_.wo) + at_.column,
                  pixels = at_.images * at_.rows * pairs_ * 2;
    const int64_t in_out = s_.stride * s_.stride;
    Ahead next_dy{dy + (out + pixels) * s_.o + o_.begin, std::min(pixels, s_.n * s_.ho * s_.wo - out - pixels),
                  o_.size(), s_.o};
    Ahead next_x{x + (out + pixels) * in_out * s_.c + c_.begin,
                 std::min(pixels * in_out, s_.n * s_.h * s_.w - (out + pixels) * in_out), c_.size(), s_.c};
    const int64_t calls = c_.size() / kTileC * taps * (o_.size() / kTileO);
    const int64_t dy_lines = pixels * o_.size() / 32 / calls + 1,
                  x_lines = pixels * in_out * c_.size() / 32 / calls + 1;
    for (int64_t c = c_.begin; c < c_.end; c += kTileC)
      for (int64_t tap = 0; tap < taps; ++tap)
        for (int64_t o = o_.begin; o < o_.end; o += kTileO) {
          next_dy.some(dy_lines);
          next_x.some(x_lines);
          multiply({dy_panel(o), x_panel(c) + x_row(tap % s_.kw, tap / s_.kw), at_.rows * pairs_, at_.images, dy_image_,
                    x_image_, dw + (o * taps + tap) * s_.c + c, taps * s_.c, first});
        }
  }

  Conv2dShape s_;
  Span o_, c_;
  int64_t pairs_, rows_, images_ = 1;              // of a panel
  int64_t dy_image_, x_image_, dy_tile_, x_tile_;  // values of one image of a tile, from one tile to the next
  Tensor dy_, x_;  // [o / 8][images][rows][pairs][8], [c / 32][images][kw][stride][rows][pairs][32]
  struct {
    int64_t image, images, row, rows, column;
  } at_;
};

}  // namespace

bool fits_weights_avx512(const Conv2dShape& s) {
  return s.groups == 1 && s.dilation == 1 && s.c % kTileC == 0 && s.o % kPackO == 0;
}

void conv2d_weights_avx512(const Conv2dShape& shape, const Tensor& x, const Tensor& dy, const Tensor& dw) {
  const Conv2dShape s = rows_of(shape);
  const auto* from = static_cast<const uint16_t*>(x.raw());
  const auto* gradient = static_cast<const uint16_t*>(dy.raw());
  float* to = dw.data<float>();
  const bool by_output = s.o >= s.c;
  const int64_t unit = by_output ? kPackO : kTileC, units = (by_output ? s.o : s.c) / unit;
  const Context rank = context();
  parallel_for(units, 1, [&](int64_t begin, int64_t end) {
    ContextGuard guard(rank);
    const Span part{begin * unit, end * unit};
    const Span all_o = by_output ? part : Span{0, s.o}, all_c = by_output ? Span{0, s.c} : part;
    for (int64_t o = all_o.begin; o < all_o.end; o += kBlock)
      for (int64_t c = all_c.begin; c < all_c.end; c += kBlock)
        Block(s, {o, std::min(o + kBlock, all_o.end)}, {c, std::min(c + kBlock, all_c.end)}).run(from, gradient, to);
  });
}

}  // namespace godwit::detail
#else
namespace godwit::detail {
bool fits_weights_avx512(const Conv2dShape&) { return false; }
void conv2d_weights_avx512(const Conv2dShape&, const Tensor&, const Tensor&, const Tensor&) {
  fail("conv2d: this processor has no AVX512_BF16");
}
}  // namespace godwit::detail
#endif
