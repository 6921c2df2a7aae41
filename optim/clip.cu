#include <limits>

#include "engine/cuda/rows.h"
#include "engine/cuda/update.h"
#include "optim/clip.h"
#include "optim/kernels/cuda/range_pieces.h"

namespace godwit::detail {
namespace {

constexpr int kLanes = 8;  // running sums per piece
static_assert(RangePieces::kValues == 4096, "as on the CPU");

// Each thread has kPack<T> neighboring running sums of a piece, and loads as many values at a time if they are aligned.
template <class T>
__global__ void clip_piece_kernel(const T* x, RangePieces::Table table, double* sums) {
  constexpr int kSums = kPack<T>, kThreads = kLanes / kSums;  // per thread; per piece
  const int64_t thread = threadIdx.x % kThreads;
  for (int64_t piece = grid_thread() / kThreads; piece - threadIdx.x % 32 / kThreads < table.pieces;
       piece += grid_threads() / kThreads) {
    double of[kSums] = {};
    if (piece < table.pieces) {
      const auto [range, begin, end, decays] = table[piece];
      const auto add = [](double& sum, T element) {
        const auto value = static_cast<double>(element);
        sum = sum + value * value;
      };
      int64_t i = begin + kSums * thread;
      if (reinterpret_cast<uintptr_t>(x + begin) % sizeof(Pack<T, kSums>) == 0) {
#pragma unroll 8
        for (; i + kSums <= end; i += kLanes) {
          const Pack<T, kSums> values = load_pack<kSums>(x + i, 0);
#pragma unroll
          for (int k = 0; k < kSums; ++k) add(of[k], values.values[k]);
        }
      } else {
        for (; i + kSums <= end; i += kLanes)
#pragma unroll
          for (int k = 0; k < kSums; ++k) add(of[k], x[i + k]);
      }
#pragma unroll
      for (int k = 0; k < kSums; ++k)
        if (i + k < end) add(of[k], x[i + k]);
    }
#pragma unroll
    for (int other = 1; other < kSums; other *= 2)
#pragma unroll
      for (int k = 0; k < kSums; k += 2 * other) of[k] = of[k] + of[k + other];
    double sum = of[0];
    for (int other = 1; other < kThreads; other *= 2) sum = sum + __shfl_xor_sync(0xFFFFFFFFu, sum, other);
    if (thread == 0 && piece < table.pieces) sums[piece] = sum;
  }
}

__global__ void clip_range_kernel(const double* sums, RangePieces::Table table, double* totals) {
  for (int64_t range = grid_thread(); range < table.ranges; range += grid_threads()) {
    const int64_t first = table.entries[range].first;
    const int64_t end = range + 1 < table.ranges ? table.entries[range + 1].first : table.pieces;
    totals[range] = ordered_sum(sums + first, end - first, 1);
  }
}

// One thread.
__global__ void norm_message_kernel(const double* squares, int64_t count, double* message) {
  message[0] = ordered_sum(squares, count, 1);
  int64_t bad = 0;
  while (bad < count && std::abs(squares[bad]) <= std::numeric_limits<double>::max()) ++bad;
  message[1] = static_cast<double>(bad);
}

// One thread.
__global__ void clip_factor_kernel(const double* squares, int64_t count, int64_t width, double limit, double ranks,
                                   double* factor) {
  const double ratio = limit / (std::sqrt(ordered_sum(squares, count, width) / ranks) + 1e-6);
  *factor = ratio < 1 ? ratio : 1;
}

template <class T>
struct Scale {
  T factor;
  __device__ void operator()(int64_t, T& x) const { x = x * factor; }
};

// Processes [0, first) and [last, n) element by element, [first, last) in packs.
template <class T>
__global__ void clip_scale_kernel(const double* factor, int64_t first, int64_t last, int64_t n, T* x) {
  if (!(*factor < 1)) return;
  const Scale<T> scale{static_cast<T>(*factor)};
  const int64_t thread = grid_thread(), stride = grid_threads();
  for (int64_t i = first + kPack<T> * thread; i < last; i += kPack<T> * stride)
    godwit::detail::update_pack<kPack<T>>(scale, i, nullptr, x);
  for (int64_t i = thread; i < first; i += stride) x[i] = x[i] * scale.factor;
  for (int64_t i = last + thread; i < n; i += stride) x[i] = x[i] * scale.factor;
}

}  // namespace

Tensor squares_of_ranges(Cuda device, const Tensor& x, const std::vector<Segment>& ranges) {
  const auto count = static_cast<int64_t>(ranges.size());
  if (count == 0) return Tensor({0}, DType::f64);
  const RangePieces pieces(ranges);
  const Tensor sums({pieces.pieces()}, DType::f64), totals({count}, DType::f64);
  dispatch_real(x.dtype(), "clip", [&]<class T>() {
    constexpr int kThreads = 64;  // small, so that the work is on many multiprocessors
    launch(device, "clip", clip_piece_kernel<T>, blocks_for(device, kLanes / kPack<T> * pieces.pieces(), kThreads),
           kThreads, x.cuda_data<T>(), pieces.table(), sums.cuda_data<double>());
  });
  launch(device, "clip", clip_range_kernel, blocks_for(device, count, 32), 32, sums.cuda_data<double>(), pieces.table(),
         totals.cuda_data<double>());
  return totals;
}

Tensor norm_message(Cuda device, const Tensor& squares) {
  Tensor message({2}, DType::f64);
  launch(device, "clip", norm_message_kernel, 1, 1, squares.cuda_data<double>(), squares.numel(),
         message.cuda_data<double>());
  return message;
}

Tensor clip_factor(Cuda device, const Tensor& squares, double limit, double ranks) {
  Tensor factor({1}, DType::f64);
  const int64_t width = row_width(squares);
  launch(device, "clip", clip_factor_kernel, 1, 1, squares.cuda_data<double>(), squares.numel() / width, width, limit,
         ranks, factor.cuda_data<double>());
  return factor;
}

void scale(Cuda device, const Tensor& x, const Tensor& factor) {
  dispatch_real(x.dtype(), "clip", [&]<class T>() {
    T* values = x.cuda_data<T>();
    const PackedRange packed = packed_range<kPack<T>>(0, x.numel(), values);
    launch(device, "clip", clip_scale_kernel<T>, blocks_for(device, packed.threads(0, x.numel())), kBlock,
           factor.cuda_data<double>(), packed.first, packed.last, x.numel(), values);
  });
}

}  // namespace godwit::detail
