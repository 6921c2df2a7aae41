#include "autograd/ops/linear_kernels.h"

namespace godwit::detail {

bool library_linear_forward(const Tensor&, const Tensors&, const Tensor&, const Tensor&) { return false; }
bool library_linear_backward_data(const Tensor&, const Tensors&, const Tensor&) { return false; }
bool library_linear_backward_weights(const Tensor&, const Tensor&, const Tensors&) { return false; }
Tensor library_linear_pack(const Tensor&, bool, int64_t, DType) { return {}; }
bool library_linear_packed(const Tensor&, const Tensor&, const Tensor&, bool, int64_t, const Tensor&) {
  fail("linear: no weights are packed in a build without oneDNN");
}

}  // namespace godwit::detail
