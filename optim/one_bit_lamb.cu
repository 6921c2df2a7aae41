#include "optim/one_bit_lamb.h"

#include "engine/cuda/cooperative.h"
#include "engine/cuda/update.h"
#include "optim/kernels/cuda/range_pieces.h"

namespace godwit {
namespace {

// Updates elements [i, i + n); `most` becomes the largest of `most` and the ratios.
template <int n>
__device__ void frozen_lamb_at(const FrozenLambStep& a, int64_t i, float& most) {
  auto m = detail::load_pack<n>(a.m + i, 0), change = detail::load_pack<n>(a.change + i, 0);
  auto v_fresh = detail::load_pack<n>(a.v_fresh + i, 0);
  const auto v = detail::load_pack<n>(a.v + i, 0);
  for (int k = 0; k < n; ++k) {
    const float ratio = a.update(m.values[k], change.values[k], v_fresh.values[k], v.values[k]);
    if (ratio > most) most = ratio;
  }
  detail::store_pack(a.m + i, m);
  detail::store_pack(a.change + i, change);
  detail::store_pack(a.v_fresh + i, v_fresh);
}

// A block of threads processes one piece at a time: it updates the elements, finds the largest ratio, adds the squares
// of p and of r, and replaces p by r. After the sums over whole parameters, it updates x.
__global__ void __launch_bounds__(kBlock, kResidentBlocks)
    frozen_lamb_kernel(const __grid_constant__ FrozenLambStep a, RangePieces::Table table, int64_t first,
                       float* largest, double* squares, float* rates, bf16* rounded) {
  constexpr int kWidth = kPack<float>;
  const float* const x = a.x;
  for (int64_t p = blockIdx.x; p < table.pieces; p += gridDim.x) {
    const RangePieces::Piece piece = table[p];
    float most = 0;
    for_packs<kWidth>(piece, first, [&]<int n>(int64_t i) { frozen_lamb_at<n>(a, i, most); });
    most = block_reduce(most, Larger{});  // a barrier, so that all threads can read the updated elements
    if (threadIdx.x == 0) largest[p] = most;
    if (!piece.decays) {
      if (threadIdx.x == 0) squares[p] = squares[table.pieces + p] = 0;
      continue;
    }
    const auto value = [&](bool decayed, int64_t i) {
      float r = a.change[i];
      if (decayed) a.decay(i, r, x[i]);
      return r;
    };
    piece_squares(piece, value, squares + p, table.pieces);
    __syncthreads();
    for_packs<kWidth>(piece, first, [&]<int n>(int64_t i) { detail::update_pack<n>(a.decay, i, nullptr, a.change, x); });
  }
  grid_barrier();
  for_range_sums(table, squares, [&](int64_t i, int64_t begin, int64_t end, double of_p, double of_r) {
    const float most = warp_largest(largest, begin, end);
    if (threadIdx.x == 0) a.factor(a.f[i], rates[i], a.mean[i], most, of_p, of_r);
  });
  grid_barrier();
  const float* const r = a.change;
  for (int64_t p = blockIdx.x; p < table.pieces; p += gridDim.x) {
    const RangePieces::Piece piece = table[p];
    const SubtractScaled<float> update{rates[piece.range]};
    for_packs<kWidth>(piece, first, [&]<int n>(int64_t i) { detail::update_pack<n>(update, i, rounded, a.x, r); });
  }
}

}  // namespace

void frozen_lamb_update(Cuda device, const FrozenLambStep& a, const Bucket&, const ParameterRanges& parameters) {
  const int64_t begin = parameters.begin(), end = parameters.end();
  const RangePieces pieces(parameters.ranges, parameters.decays);
  const Tensor largest({pieces.pieces()}), squares({2, pieces.pieces()}, DType::f64);
  const Tensor rates({std::ssize(parameters.ranges)});
  launch_cooperative(device, "one_bit_lamb", frozen_lamb_kernel, pieces.pieces(), a, pieces.table(),
                     packed_range<kPack<float>>(begin, end, a.m, a.change, a.v_fresh, a.v, a.x).first,
                     largest.cuda_data<float>(), squares.cuda_data<double>(), rates.cuda_data<float>(),
                     detail::rounded_target(begin, end, a.x));
}

}  // namespace godwit
