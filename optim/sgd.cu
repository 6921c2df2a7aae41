#include "optim/sgd.h"

#include "engine/cuda/update.h"

namespace godwit {

template void update_by_turns(Cuda, const char*, int64_t, int64_t, const std::vector<int64_t>&, SgdUpdate<float>,
                              SgdUpdate<float>, float*, const float*);
template void update_by_turns(Cuda, const char*, int64_t, int64_t, const std::vector<int64_t>&, SgdUpdate<double>,
                              SgdUpdate<double>, double*, const double*);
template void update_by_turns(Cuda, const char*, int64_t, int64_t, const std::vector<int64_t>&, MomentumUpdate<float>,
                              MomentumUpdate<float>, float*, float*, const float*);
template void update_by_turns(Cuda, const char*, int64_t, int64_t, const std::vector<int64_t>&, MomentumUpdate<double>,
                              MomentumUpdate<double>, double*, double*, const double*);

}  // namespace godwit
