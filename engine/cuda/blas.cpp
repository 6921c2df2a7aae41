#include "engine/cuda/blas.h"

#include "engine/context.h"
#include "engine/cuda/cuda_context.h"

namespace godwit {
namespace {

// A handle of the library's, destroyed by `destroy`.
template <class Handle, cublasStatus_t (*destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  ~Owned() {
    if (handle_) destroy(handle_);
  }
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Handle* out() { return &handle_; }
  operator Handle() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};
using Desc = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

struct Plan {
  Desc desc;
  Layout a, b, c;
  cublasLtMatmulAlgo_t algorithm{};
  int64_t workspace = 0;
};

constexpr uint64_t kMostWorkspace = 32 << 20;  // what NVIDIA asks for on Hopper
constexpr uint32_t kAlignment = 16;            // bytes: of what the library's fastest kernels load and store at once
constexpr int64_t kProduct = 1;                // first of the keys of this file in the context's cache

cudaDataType_t library_type(DType dtype, const char* operation) {
  switch (dtype) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f64: return CUDA_R_64F;
    default: fail(operation, ": takes float32, bfloat16 or float64, not ", dtype);
  }
}

template <class T>
void set(const Desc& desc, cublasLtMatmulDescAttributes_t attribute, T value) {
  cuda_check(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
}
template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  cuda_check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
             "cublasLtMatmulPreferenceSetAttribute");
}

// Of a row-major matrix [rows, columns]: to the library, which counts by columns, it is its transpose.
Layout layout(DType dtype, int64_t rows, int64_t columns, int64_t entries, const char* operation) {
  Layout made;
  cuda_check(cublasLtMatrixLayoutCreate(made.out(), library_type(dtype, operation), static_cast<uint64_t>(columns),
                                        static_cast<uint64_t>(rows), columns),
             "cublasLtMatrixLayoutCreate");
  const auto count = static_cast<int32_t>(entries);
  const int64_t stride = rows * columns;
  cuda_check(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
             "cublasLtMatrixLayoutSetAttribute");
  cuda_check(
      cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)),
      "cublasLtMatrixLayoutSetAttribute");
  return made;
}

bool is_aligned(const Tensor& x) { return reinterpret_cast<uintptr_t>(x.address()) % kAlignment == 0; }

// Parameters begin anywhere in their bucket. A copy costs less than the kernels for such memory, and sums do not depend
// on where it begins.
Tensor aligned(const Tensor& x) { return x.defined() && !is_aligned(x) ? x.clone() : x; }

cublasComputeType_t compute_type(DType dtype) {
  if (dtype == DType::f64) return CUBLAS_COMPUTE_64F;
  return dtype == DType::f32 && context().tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

// cᵀ = op(b)ᵀ · op(a)ᵀ is what the library computes, so its first matrix is our b.
Plan make_plan(Cuda device, const CudaProduct& p, const Tensor& a, const Tensor& b, const Tensor& bias,
               const Tensor& c) {
  Plan plan;
  cuda_check(cublasLtMatmulDescCreate(plan.desc.out(), compute_type(a.dtype()),
                                      a.dtype() == DType::f64 ? CUDA_R_64F : CUDA_R_32F),
             "cublasLtMatmulDescCreate");
  set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSA, static_cast<int32_t>(p.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSB, static_cast<int32_t>(p.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N));
  if (bias.defined()) {
    set(plan.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias.address()));
  }
  plan.a = layout(b.dtype(), p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n, p.entries, p.operation);
  plan.b = layout(a.dtype(), p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k, p.entries, p.operation);
  plan.c = layout(c.dtype(), p.m, p.n, p.entries, p.operation);
  Preference preference;
  cuda_check(cublasLtMatmulPreferenceCreate(preference.out()), "cublasLtMatmulPreferenceCreate");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
  // Parts of a sum are added as float32 (float64), never rounded to c's type before.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kAlignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kAlignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kAlignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kAlignment);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(device.context->blas(), plan.desc, plan.a, plan.b,
                                                               plan.c, plan.c, preference, 1, &found, &count);
  check(status == CUBLAS_STATUS_SUCCESS && count > 0, p.operation, ": cuBLASLt has no way to multiply ", a.dtype(),
        " [", p.m, ", ", p.k, "] by [", p.k, ", ", p.n, "] to ", c.dtype(), ": ", cublasLtGetStatusString(status));
  plan.algorithm = found.algo;
  plan.workspace = static_cast<int64_t>(found.workspaceSize);
  return plan;
}

}  // namespace

void multiply(Cuda device, const CudaProduct& p, const Tensor& a_given, const Tensor& b_given, const Tensor& bias_given,
              const Tensor& c) {
  if (!is_aligned(c)) {
    const Tensor result = p.add ? c.clone() : Tensor(c.shape(), c.dtype(), c.device());
    multiply(device, p, a_given, b_given, bias_given, result);
    return c.copy_from(result);
  }
  const Tensor a = aligned(a_given), b = aligned(b_given), bias = aligned(bias_given);
  const std::vector<int64_t> key{kProduct,
                                 p.trans_a,
                                 p.trans_b,
                                 p.m,
                                 p.n,
                                 p.k,
                                 p.entries,
                                 p.add,
                                 static_cast<int64_t>(a.dtype()),
                                 static_cast<int64_t>(c.dtype()),
                                 bias.defined(),
                                 context().tf32};
  Plan& plan = device.context->cached<Plan>(key, [&] { return make_plan(device, p, a, b, bias, c); });
  if (bias.defined()) set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias.address()));
  const Tensor room = workspace(device, plan.workspace);
  const double numbers64[] = {0, 1};
  const float numbers32[] = {0, 1};
  const auto number = [&](bool i) -> const void* {
    if (a.dtype() == DType::f64) return &numbers64[i];
    return &numbers32[i];
  };
  cuda_check(cublasLtMatmul(device.context->blas(), plan.desc, number(true), b.address(), plan.a, a.address(), plan.b,
                            number(p.add),
                            c.address(), plan.c, c.address(), plan.c, &plan.algorithm, room.address(),
                            static_cast<size_t>(plan.workspace), device.stream),
             "cublasLtMatmul");
}

}  // namespace godwit
