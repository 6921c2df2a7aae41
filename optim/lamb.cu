#include "optim/lamb.h"

#include "engine/cuda/update.h"
#include "optim/kernels/cuda/range_pieces.h"

namespace godwit {
namespace {

// A block of threads processes one piece at a time: it updates the elements, then adds the squares of x and of g.
template <class T>
__global__ void lamb_moments_kernel(const __grid_constant__ LambStep<T> step, RangePieces::Table table, int64_t first,
                                    double* squares) {
  for (int64_t p = blockIdx.x; p < table.pieces; p += gridDim.x) {
    const RangePieces::Piece piece = table[p];
    const LambUpdate<T> update = step.update_of(piece.decays);
    for_packs<kPack<T>>(piece, first, [&]<int n>(int64_t i) {
      detail::update_pack<n>(update, i, nullptr, step.g, step.m, step.v, step.x);
    });
    __syncthreads();
    piece_squares(piece, [&](bool of_g, int64_t i) { return of_g ? step.g[i] : step.x[i]; }, squares + p, table.pieces);
  }
}

}  // namespace

template <class T>
Tensor lamb_rates(Cuda device, const LambStep<T>& step, const Bucket&, const ParameterRanges& parameters) {
  const RangePieces pieces(parameters.ranges, parameters.decays);
  const Tensor squares({2, pieces.pieces()}, DType::f64), rates({std::ssize(parameters.ranges)}, dtype_of<T>);
  const int64_t first =
      packed_range<kPack<T>>(parameters.begin(), parameters.end(), step.g, step.m, step.v, step.x).first;
  launch(device, "lamb", lamb_moments_kernel<T>, blocks_for(device, kBlock * pieces.pieces()), kBlock, step,
         pieces.table(), first, squares.cuda_data<double>());
  for_range_sums(device, "lamb", pieces, squares, step.coefficient, step.c, rates.cuda_data<T>());
  return rates;
}

template Tensor lamb_rates(Cuda, const LambStep<float>&, const Bucket&, const ParameterRanges&);
template Tensor lamb_rates(Cuda, const LambStep<double>&, const Bucket&, const ParameterRanges&);
template void update_by_parts(Cuda, const char*, int64_t, int64_t, const std::vector<int64_t>&,
                              SubtractScaledParts<float>, float*, const float*);
template void update_by_parts(Cuda, const char*, int64_t, int64_t, const std::vector<int64_t>&,
                              SubtractScaledParts<double>, double*, const double*);

}  // namespace godwit
