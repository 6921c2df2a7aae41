#include "optim/one_bit_lamb.h"

#include <bit>

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

// A block of threads processes one piece at a time: it updates the elements, then adds the squares of p and of r, then
// replaces p by r.
__global__ void frozen_lamb_kernel(const __grid_constant__ FrozenLambStep a, RangePieces::Table table, int64_t first,
                                   uint32_t* largest, double* squares) {
  constexpr int kWidth = kPack<float>;
  for (int64_t p = blockIdx.x; p < table.pieces; p += gridDim.x) {
    const RangePieces::Piece piece = table[p];
    float most = 0;
    for_packs<kWidth>(piece, first, [&]<int n>(int64_t i) { frozen_lamb_at<n>(a, i, most); });
    most = block_reduce(most, Larger{});  // a barrier, so that all threads can read the updated elements
    // The bits of positive floats have the order of their values.
    if (threadIdx.x == 0) atomicMax(largest + piece.range, std::bit_cast<uint32_t>(most));
    if (!piece.decays) {
      if (threadIdx.x == 0) squares[p] = squares[table.pieces + p] = 0;
      continue;
    }
    const auto value = [&](bool decayed, int64_t i) {
      float r = a.change[i];
      if (decayed) a.decay(i, r, a.x[i]);
      return r;
    };
    piece_squares(piece, value, squares + p, table.pieces);
    __syncthreads();
    for_packs<kWidth>(piece, first,
                      [&]<int n>(int64_t i) { detail::update_pack<n>(a.decay, i, nullptr, a.change, a.x); });
  }
}

}  // namespace

Tensor frozen_lamb_rates(Cuda device, const FrozenLambStep& a, const Bucket&, const ParameterRanges& parameters) {
  const RangePieces pieces(parameters.ranges, parameters.decays);
  const int64_t count = std::ssize(parameters.ranges);
  const Tensor largest = Tensor::zeros({count}), rates({count}), squares({2, pieces.pieces()}, DType::f64);
  const int64_t first =
      packed_range<kPack<float>>(parameters.begin(), parameters.end(), a.m, a.change, a.v_fresh, a.v, a.x).first;
  launch(device, "one_bit_lamb", frozen_lamb_kernel, blocks_for(device, kBlock * pieces.pieces()), kBlock, a,
         pieces.table(), first, reinterpret_cast<uint32_t*>(largest.cuda_data<float>()), squares.cuda_data<double>());
  for_range_sums(device, "one_bit_lamb", pieces, squares, a.factor, a.f, rates.cuda_data<float>(), a.mean,
                 static_cast<const float*>(largest.cuda_data<float>()));
  return rates;
}

}  // namespace godwit
