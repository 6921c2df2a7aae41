#include "autograd/ops/packed_product.h"

#include "autograd/ops/kernel_weights.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/linear_kernels.h"

namespace godwit {
namespace {

// Splits w [out, in] so that the first part has a multiple of eight rows. cuBLASLt is several times slower otherwise.
std::vector<Tensor> fast_parts(const Tensor& w) {
  const int64_t whole = w.dim(0) / 8 * 8, rest = w.dim(0) - whole;
  if (whole == 0 || rest == 0) return {w};
  return {w.rows(0, whole), w.rows(whole, rest)};
}

}  // namespace

PackedProduct::PackedProduct(const Tensor& w, bool transposed, int64_t rows, DType type)
    : w_(kernel_weights(w, type)), transposed_(transposed), rows_(rows) {
  if (type != DType::f64 && !w.device().is_cuda()) packed_ = detail::library_linear_pack(w, transposed, rows, type);
}

void PackedProduct::operator()(const Tensor& x, const Tensor& y) const {
  if (packed_.defined() && detail::library_linear_packed(x, w_, packed_, transposed_, rows_, y)) return;
  on_device(y, [&](auto device) {
    if (transposed_) linear_forward(device, x, y.dim(1) > w_.dim(0) ? fast_parts(w_) : std::vector{w_}, {}, y);
    else linear_backward_data(device, x, {w_}, y);
  });
}

}  // namespace godwit
