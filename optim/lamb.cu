#include "optim/lamb.h"

#include "engine/cuda/update.h"

namespace godwit {

template void update_by_turns(Cuda, const char*, int64_t, int64_t, const std::vector<int64_t>&, LambUpdate<float>,
                              LambUpdate<float>, float*, float*, float*, const float*);
template void update_by_turns(Cuda, const char*, int64_t, int64_t, const std::vector<int64_t>&, LambUpdate<double>,
                              LambUpdate<double>, double*, double*, double*, const double*);
template void update_each(Cuda, const char*, int64_t, int64_t, LambCoefficient<float>, double*, float*, const double*,
                          const double*);
template void update_each(Cuda, const char*, int64_t, int64_t, LambCoefficient<double>, double*, double*, const double*,
                          const double*);
template void update_by_parts(Cuda, const char*, int64_t, int64_t, const std::vector<int64_t>&,
                              SubtractScaledParts<float>, float*, const float*);
template void update_by_parts(Cuda, const char*, int64_t, int64_t, const std::vector<int64_t>&,
                              SubtractScaledParts<double>, double*, const double*);

}  // namespace godwit
