#include "optim/kernels/one_bit_kernels.h"

#include <bit>

#include "engine/cuda/reduce.h"
#include "engine/cuda/update.h"

namespace godwit {

template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::WhereNotZero, float*, const float*,
                          const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::VarianceRefresh, float*, const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::MomentumUpdate, float*, const float*,
                          const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::VarianceUpdate, float*, const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::FrozenUpdate, float*, float*, const float*,
                          const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::FrozenUpdate, float*, const float*,
                          const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::LocalMomentum, float*, float*, const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::LocalUpdate, float*, const float*,
                          const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, one_bit::SyncUpdate, float*, const float*, float*,
                          float*, const float*);

}  // namespace godwit

namespace godwit::one_bit {
namespace {

__global__ void frozen_lamb_kernel(FrozenLamb a, int64_t begin, int64_t end, uint32_t* largest) {
  float most = 0;
  for (int64_t i = begin + grid_thread(); i < end; i += grid_threads()) {
    const float ratio = a.f(a.m[i], a.agreed[i], a.v_fresh[i], a.v[i]);
    if (ratio > most) most = ratio;
  }
  most = block_reduce(most, Larger{});
  // The bits of positive floats have the order of their values.
  if (threadIdx.x == 0) atomicMax(largest, std::bit_cast<uint32_t>(most));
}

}  // namespace

std::vector<float> frozen_lamb(Cuda device, const FrozenLamb& a, const std::vector<Segment>& ranges) {
  const Tensor largest = Tensor::zeros({static_cast<int64_t>(ranges.size())}, DType::u32);
  for (size_t i = 0; i < ranges.size(); ++i)
    launch(device, "one_bit_lamb", frozen_lamb_kernel, blocks_for(device, ranges[i].numel()), kBlock, a,
           ranges[i].begin, ranges[i].end, largest.cuda_data<uint32_t>() + i);
  std::vector<float> all;
  for (const uint32_t bits : largest.to_vector<uint32_t>()) all.push_back(std::bit_cast<float>(bits));
  return all;
}

}  // namespace godwit::one_bit
