#include "autograd/ops/matmul.h"
#include "engine/cuda/blas.h"

namespace godwit {

void matmul(Cuda device, bool trans_a, bool trans_b, const Tensor& a, const Tensor& b, const Tensor& c) {
  const int last = c.shape().rank() - 1;
  const CudaProduct product{"matmul",
                            trans_a,
                            trans_b,
                            c.dim(last - 1),
                            c.dim(last),
                            trans_a ? a.dim(last - 1) : a.dim(last),
                            last == 2 ? c.dim(0) : 1};
  multiply(device, product, a, b, c);
}

}  // namespace godwit
