#include <bit>

#include "engine/cuda/reduce.h"
#include "engine/cuda/update.h"
#include "optim/kernels/cuda/range_pieces.h"
#include "optim/kernels/one_bit_kernels.h"

namespace godwit {

template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::WhereNotZero, float*, const float*,
                          const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::WhereZero, float*, const float*, const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::LateMoment, float*, const float*, const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::VarianceRefresh, float*, const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::MomentumUpdate, float*, const float*,
                          const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::VarianceUpdate, float*, const float*);
template void update_by_turns(Cuda, const char*, int64_t, int64_t, const std::vector<int64_t>&, one_bit::FrozenUpdate,
                              one_bit::FrozenUpdate, float*, float*, const float*, const float*);
template void update_by_turns(Cuda, const char*, int64_t, int64_t, const std::vector<int64_t>&, one_bit::FrozenUpdate,
                              one_bit::FrozenUpdate, float*, const float*, const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::LocalMomentum, float*, float*, const float*);
template void update_by_turns(Cuda, const char*, int64_t, int64_t, const std::vector<int64_t>&, one_bit::LocalUpdate,
                              one_bit::LocalUpdate, float*, const float*, const float*);
template void update_by_turns(Cuda, const char*, int64_t, int64_t, const std::vector<int64_t>&, one_bit::SyncUpdate,
                              one_bit::SyncUpdate, float*, const float*, float*, float*, const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::LambMean, float*, const double*);
template void update_by_turns(Cuda, const char*, int64_t, int64_t, const std::vector<int64_t>&, one_bit::LambDecay,
                              one_bit::LambDecay, float*, const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::LambFactor, float*, float*, const float*,
                          const float*, const double*, const double*);

}  // namespace godwit

namespace godwit::one_bit {
namespace {

// Updates elements [i, i + n); `most` becomes the largest of `most` and the ratios.
template <int n>
__device__ void frozen_lamb_at(const FrozenLamb& a, int64_t i, float& most) {
  auto m = detail::load_pack<n>(a.m + i, 0), agreed = detail::load_pack<n>(a.agreed + i, 0);
  auto v_fresh = detail::load_pack<n>(a.v_fresh + i, 0);
  const auto v = detail::load_pack<n>(a.v + i, 0);
  for (int k = 0; k < n; ++k) {
    const float ratio = a.f(m.values[k], agreed.values[k], v_fresh.values[k], v.values[k]);
    if (ratio > most) most = ratio;
  }
  detail::store_pack(a.m + i, m);
  detail::store_pack(a.agreed + i, agreed);
  detail::store_pack(a.v_fresh + i, v_fresh);
}

// A block of threads processes one piece at a time: in packs of 16 bytes, which begin at first, first + kWidth, …, and
// the remaining elements one by one.
__global__ void frozen_lamb_kernel(FrozenLamb a, RangePieces::Table table, int64_t first, uint32_t* largest) {
  constexpr int kWidth = kPack<float>;
  for (int64_t p = blockIdx.x; p < table.pieces; p += gridDim.x) {
    const auto [range, begin, end] = table[p];
    const int64_t aligned = begin <= first ? first : begin + ((first - begin) & (kWidth - 1));
    const int64_t packs = aligned < end ? aligned : end, rest = packs + ((end - packs) & ~int64_t{kWidth - 1});
    float most = 0;
    for (int64_t i = packs + kWidth * threadIdx.x; i < rest; i += kWidth * blockDim.x)
      frozen_lamb_at<kWidth>(a, i, most);
    for (int64_t i = begin + threadIdx.x; i < packs; i += blockDim.x) frozen_lamb_at<1>(a, i, most);
    for (int64_t i = rest + threadIdx.x; i < end; i += blockDim.x) frozen_lamb_at<1>(a, i, most);
    most = block_reduce(most, Larger{});
    // The bits of positive floats have the order of their values.
    if (threadIdx.x == 0) atomicMax(largest + range, std::bit_cast<uint32_t>(most));
  }
}

}  // namespace

Tensor frozen_lamb(Cuda device, const FrozenLamb& a, const std::vector<Segment>& ranges) {
  const Tensor largest = Tensor::zeros({std::ssize(ranges)});
  if (ranges.empty()) return largest;
  const RangePieces pieces(ranges);
  const int64_t first =
      packed_range<kPack<float>>(ranges.front().begin, ranges.back().end, a.m, a.agreed, a.v_fresh, a.v).first;
  launch(device, "one_bit_lamb", frozen_lamb_kernel, blocks_for(device, kBlock * pieces.pieces()), kBlock, a,
         pieces.table(), first, reinterpret_cast<uint32_t*>(largest.cuda_data<float>()));
  return largest;
}

}  // namespace godwit::one_bit
