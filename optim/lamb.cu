#include "optim/lamb.h"

#include "engine/cuda/cooperative.h"
#include "engine/cuda/update.h"
#include "optim/kernels/cuda/range_pieces.h"

namespace godwit {
namespace {

// A block of threads processes one piece at a time: it updates the elements, then adds the squares of x and of r. After
// the sums over whole parameters, it updates x.
template <class T>
__global__ void __launch_bounds__(kBlock, kResidentBlocks)
    lamb_kernel(const __grid_constant__ LambStep<T> step, RangePieces::Table table, int64_t first, double* squares,
                T* rates, bf16* rounded) {
  constexpr int kWidth = kPack<T>;
  const T* const x = step.x;
  for (int64_t p = blockIdx.x; p < table.pieces; p += gridDim.x) {
    const RangePieces::Piece piece = table[p];
    const LambUpdate<T> update = step.update_of(piece.decays);
    for_packs<kWidth>(piece, first, [&]<int n>(int64_t i) {
      detail::update_pack<n>(update, i, nullptr, step.g, step.m, step.v, x);
    });
    __syncthreads();
    piece_squares(piece, [&](bool of_r, int64_t i) { return of_r ? step.g[i] : x[i]; }, squares + p, table.pieces);
  }
  grid_barrier();
  for_range_sums(table, squares, [&](int64_t i, int64_t, int64_t, double of_x, double of_r) {
    if (threadIdx.x == 0) step.coefficient(step.mean[i], rates[i], of_x, of_r);
  });
  grid_barrier();
  const T* const r = step.g;
  for (int64_t p = blockIdx.x; p < table.pieces; p += gridDim.x) {
    const RangePieces::Piece piece = table[p];
    const SubtractScaled<T> update{rates[piece.range]};
    for_packs<kWidth>(piece, first,
                      [&]<int n>(int64_t i) { detail::update_pack<n>(update, i, rounded, step.x, r); });
  }
}

}  // namespace

template <class T>
void lamb_update(Cuda device, const LambStep<T>& step, const Bucket&, const ParameterRanges& parameters) {
  const int64_t begin = parameters.begin(), end = parameters.end();
  const RangePieces pieces(parameters.ranges, parameters.decays);
  const Tensor squares({2, pieces.pieces()}, DType::f64), rates({std::ssize(parameters.ranges)}, dtype_of<T>);
  launch_cooperative(device, "lamb", lamb_kernel<T>, pieces.pieces(), step, pieces.table(),
                     packed_range<kPack<T>>(begin, end, step.g, step.m, step.v, step.x).first,
                     squares.cuda_data<double>(), rates.cuda_data<T>(), detail::rounded_target(begin, end, step.x));
}

template void lamb_update(Cuda, const LambStep<float>&, const Bucket&, const ParameterRanges&);
template void lamb_update(Cuda, const LambStep<double>&, const Bucket&, const ParameterRanges&);

}  // namespace godwit
