#include "autograd/ops/packed_product.h"

#include "autograd/ops/kernel_weights.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/linear_kernels.h"

namespace godwit {

PackedProduct::PackedProduct(const Tensor& w, bool transposed, int64_t rows, DType type)
    : w_(kernel_weights(w, type)), transposed_(transposed), rows_(rows) {
  if (type != DType::f64 && !w.device().is_cuda()) packed_ = detail::library_linear_pack(w, transposed, rows, type);
}

void PackedProduct::operator()(const Tensor& x, const Tensor& y) const {
  if (packed_.defined() && detail::library_linear_packed(x, w_, packed_, transposed_, rows_, y)) return;
  on_device(y, [&](auto device) {
    if (transposed_) linear_forward(device, x, {w_}, {}, y);
    else linear_backward_data(device, x, {w_}, y);
  });
}

}  // namespace godwit
