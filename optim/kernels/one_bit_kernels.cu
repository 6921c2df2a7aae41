#include "optim/kernels/one_bit_kernels.h"

#include "engine/cuda/update.h"

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

}  // namespace godwit
