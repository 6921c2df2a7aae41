#include <bit>

#include "engine/cuda/reduce.h"
#include "engine/cuda/update.h"
#include "optim/kernels/one_bit_kernels.h"

namespace godwit {

template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::WhereNotZero, float*, const float*,
                          const float*);
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

}  // namespace godwit

namespace godwit::one_bit {
namespace {

// Updates elements [i, i + n); `most` becomes the larger of itself and their ratios.
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

// Processes [first, last) in packs of 16 bytes, the rest of [begin, end) element by element.
__global__ void frozen_lamb_kernel(FrozenLamb a, int64_t begin, int64_t first, int64_t last, int64_t end,
                                   uint32_t* largest) {
  constexpr int kWidth = kPack<float>;
  float most = 0;
  for (int64_t i = first + kWidth * grid_thread(); i < last; i += kWidth * grid_threads())
    frozen_lamb_at<kWidth>(a, i, most);
  for (int64_t i = begin + grid_thread(); i < first; i += grid_threads()) frozen_lamb_at<1>(a, i, most);
  for (int64_t i = last + grid_thread(); i < end; i += grid_threads()) frozen_lamb_at<1>(a, i, most);
  most = block_reduce(most, Larger{});
  // The bits of positive floats have the order of their values.
  if (threadIdx.x == 0) atomicMax(largest, std::bit_cast<uint32_t>(most));
}

}  // namespace

std::vector<float> frozen_lamb(Cuda device, const FrozenLamb& a, const std::vector<Segment>& ranges) {
  const Tensor largest = Tensor::zeros({static_cast<int64_t>(ranges.size())}, DType::u32);
  for (size_t i = 0; i < ranges.size(); ++i) {
    const auto [begin, end] = ranges[i];
    const PackedRange packed = packed_range<kPack<float>>(begin, end, a.m, a.agreed, a.v_fresh, a.v);
    launch(device, "one_bit_lamb", frozen_lamb_kernel, blocks_for(device, packed.threads(begin, end)), kBlock, a, begin,
           packed.first, packed.last, end, largest.cuda_data<uint32_t>() + i);
  }
  std::vector<float> all;
  for (const uint32_t bits : largest.to_vector<uint32_t>()) all.push_back(std::bit_cast<float>(bits));
  return all;
}

}  // namespace godwit::one_bit
