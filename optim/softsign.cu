#include "optim/softsign.h"

#include "engine/cuda/update.h"

namespace godwit {

template void update_by_turns(Cuda, const char*, int64_t, int64_t, const std::vector<int64_t>&, SoftSignUpdate<float>,
                              SoftSignUpdate<float>, float*, float*, float*, const float*);
template void update_by_turns(Cuda, const char*, int64_t, int64_t, const std::vector<int64_t>&, SoftSignUpdate<double>,
                              SoftSignUpdate<double>, double*, double*, double*, const double*);

}  // namespace godwit
