#include "optim/sgd.h"

#include "engine/cuda/update.h"

namespace godwit {

template void update_each(Cuda, const char*, int64_t, int64_t, SgdUpdate<float>, float*, const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, SgdUpdate<double>, double*, const double*);
template void update_each(Cuda, const char*, int64_t, int64_t, MomentumUpdate<float>, float*, float*, const float*);
template void update_each(Cuda, const char*, int64_t, int64_t, MomentumUpdate<double>, double*, double*, const double*);

}  // namespace godwit
