#include <algorithm>

#include "engine/gemm.h"
#include "engine/onednn.h"
#include "engine/subnormals.h"

namespace godwit {

void gemm(Cpu, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
          const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0) {  // oneDNN rejects k = 0
    for (int64_t i = 0; i < m; ++i)
      std::transform(c + i * ldc, c + i * ldc + n, c + i * ldc, [=](float x) { return beta == 0 ? 0 : beta * x; });
    return;
  }
  onednn::engine();             // sets the number of threads
  const FlushSubnormals flush;  // this thread only: setting the library's threads takes longer than small products
  const auto status =
      dnnl::sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  check(status == dnnl::status::success, "gemm: oneDNN rejects [", m, ", ", k, "] · [", k, ", ", n,
        "] with row strides ", lda, ", ", ldb, ", ", ldc, " (status ", static_cast<int>(status), ")");
}

}  // namespace godwit
