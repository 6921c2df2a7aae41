#include "autograd/ops/linear_kernels.h"

namespace godwit::detail {

bool linear_forward_bf16(const Tensor&, const Tensor&, const Tensor&, const Tensor&) { return false; }
bool linear_backward_data_bf16(const Tensor&, const Tensor&, const Tensor&) { return false; }
bool linear_backward_weights_bf16(const Tensor&, const Tensor&, const Tensor&) { return false; }

}  // namespace godwit::detail
