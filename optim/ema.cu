#include "optim/ema.h"

#include "engine/cuda/update.h"

namespace godwit {

template void update_each(Cuda, const char*, int64_t, int64_t, detail::FollowUpdate<float>, float*, const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, detail::FollowUpdate<double>, double*, const double*);
template void update_each(Cuda, const char*, int64_t, int64_t, detail::Swap<float>, float*, float*);
template void update_each(Cuda, const char*, int64_t, int64_t, detail::Swap<double>, double*, double*);

}  // namespace godwit
