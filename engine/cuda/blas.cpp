#include "engine/cuda/blas.h"

#include <array>
#include <numeric>

#include "engine/context.h"
#include "engine/cuda/cuda_context.h"

namespace godwit {
namespace {

// An owned library handle, destroyed by `destroy`.
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
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;  // of the algorithm search
};

constexpr uint64_t kMostWorkspace = 32 << 20;  // NVIDIA's recommendation for Hopper
constexpr uint32_t kAlignment = 16;            // bytes; width of the library's widest loads and stores
constexpr int64_t kProduct = 1;                // first cache key of this file in the context

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

// Layout of a row-major matrix [rows, columns], which is the transposed matrix for the column-major library.
Layout layout(DType dtype, int64_t rows, int64_t columns, const MatrixStrides& strides, const CudaProduct& p) {
  Layout made;
  cuda_check(cublasLtMatrixLayoutCreate(made.out(), library_type(dtype, p.operation), static_cast<uint64_t>(columns),
                                        static_cast<uint64_t>(rows), strides.row < 0 ? columns : strides.row),
             "cublasLtMatrixLayoutCreate");
  const auto count = static_cast<int32_t>(p.entries);
  const int64_t stride = strides.entry < 0 ? rows * columns : strides.entry;
  cuda_check(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
             "cublasLtMatrixLayoutSetAttribute");
  cuda_check(
      cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)),
      "cublasLtMatrixLayoutSetAttribute");
  return made;
}

bool is_aligned(const Tensor& x) { return reinterpret_cast<uintptr_t>(x.address()) % kAlignment == 0; }

// x if it is aligned or has strides, otherwise an aligned copy. Parameters may begin at any offset of a bucket. A copy
// is cheaper than the kernels for unaligned memory, and makes sums independent of the alignment.
Tensor aligned(const Tensor& x, const MatrixStrides& strides = {}) {
  return is_aligned(x) || !strides.adjacent() ? x : x.clone();
}

// Alignment that the library may assume for x, in bytes.
uint32_t alignment_of(const Tensor& x, const MatrixStrides& strides) {
  if (strides.adjacent()) return kAlignment;
  return static_cast<uint32_t>(std::gcd(reinterpret_cast<uintptr_t>(x.address()), uintptr_t{kAlignment}));
}

cublasComputeType_t compute_type(DType dtype) {
  if (dtype == DType::f64) return CUBLAS_COMPUTE_64F;
  return dtype == DType::f32 && context().tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasLtEpilogue_t cublas_epilogue(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::add_bias: return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::sum_a: return CUBLASLT_EPILOGUE_BGRADB;
    default: return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

// The library computes cᵀ = op(b)ᵀ · op(a)ᵀ, so its first matrix is b and its second is a.
Plan make_plan(Cuda device, Epilogue epilogue, const CudaProduct& p, DType type, DType c_type,
               const std::array<uint32_t, 3>& alignments) {
  Plan plan;
  cuda_check(cublasLtMatmulDescCreate(plan.desc.out(), compute_type(type),
                                      type == DType::f64 ? CUDA_R_64F : CUDA_R_32F),
             "cublasLtMatmulDescCreate");
  set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSA, static_cast<int32_t>(p.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSB, static_cast<int32_t>(p.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N));
  if (epilogue != Epilogue::none) {
    set(plan.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, cublas_epilogue(epilogue));
    // The search uses only the alignment of this pointer.
    set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, uintptr_t{kAlignment});
    if (p.entries > 1) set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, p.vector_stride);
  }
  plan.a = layout(type, p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n, p.of_b, p);
  plan.b = layout(type, p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k, p.of_a, p);
  plan.c = layout(c_type, p.m, p.n, p.of_c, p);
  Preference preference;
  cuda_check(cublasLtMatmulPreferenceCreate(preference.out()), "cublasLtMatmulPreferenceCreate");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
  // Partial sums are added in float32 or float64, without rounding to c's type first.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments[1]);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments[0]);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments[2]);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments[2]);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  plan.status = cublasLtMatmulAlgoGetHeuristic(device.context->blas(), plan.desc, plan.a, plan.b, plan.c, plan.c,
                                               preference, 1, &found, &count);
  if (plan.status == CUBLAS_STATUS_SUCCESS && count == 0) plan.status = CUBLAS_STATUS_NOT_SUPPORTED;
  plan.algorithm = found.algo;
  plan.workspace = static_cast<int64_t>(found.workspaceSize);
  return plan;
}

Plan& plan_for(Cuda device, Epilogue epilogue, const CudaProduct& p, const Tensor& a, const Tensor& b,
               const Tensor& c) {
  const std::array<uint32_t, 3> alignments{alignment_of(a, p.of_a), alignment_of(b, p.of_b), alignment_of(c, p.of_c)};
  const std::vector<int64_t> key{kProduct,
                                 static_cast<int64_t>(epilogue),
                                 p.trans_a,
                                 p.trans_b,
                                 p.m,
                                 p.n,
                                 p.k,
                                 p.entries,
                                 static_cast<int64_t>(a.dtype()),
                                 static_cast<int64_t>(c.dtype()),
                                 context().tf32,
                                 p.of_a.row,
                                 p.of_a.entry,
                                 p.of_b.row,
                                 p.of_b.entry,
                                 p.of_c.row,
                                 p.of_c.entry,
                                 p.vector_stride,
                                 alignments[0],
                                 alignments[1],
                                 alignments[2]};
  return device.context->cached<Plan>(
      key, [&] { return make_plan(device, epilogue, p, a.dtype(), c.dtype(), alignments); });
}

void run(Cuda device, const Plan& plan, bool add, const Tensor& a, const Tensor& b, const Tensor& c) {
  const Tensor room = workspace(device, plan.workspace);
  const double numbers64[] = {0, 1};
  const float numbers32[] = {0, 1};
  const auto number = [&](bool i) -> const void* {
    if (a.dtype() == DType::f64) return &numbers64[i];
    return &numbers32[i];
  };
  cuda_check(cublasLtMatmul(device.context->blas(), plan.desc, number(true), b.address(), plan.a, a.address(), plan.b,
                            number(add), c.address(), plan.c, c.address(), plan.c, &plan.algorithm, room.address(),
                            static_cast<size_t>(plan.workspace), device.stream),
             "cublasLtMatmul");
}

// Memory for writing x: its own memory if aligned, otherwise a temporary tensor.
Tensor room_for(const Tensor& x, const MatrixStrides& strides = {}) {
  return is_aligned(x) || !strides.adjacent() ? x : Tensor(x.shape(), x.dtype(), x.device());
}

void put_back(const Tensor& written, const Tensor& x) {
  if (written.address() != x.address()) x.copy_from(written);
}

}  // namespace

void multiply(Cuda device, const CudaProduct& p, const Tensor& a, const Tensor& b, const Tensor& c) {
  const Plan& plan = plan_for(device, Epilogue::none, p, a, b, c);
  check(plan.status == CUBLAS_STATUS_SUCCESS, p.operation, ": cuBLASLt cannot multiply ", a.dtype(), " [", p.m,
        ", ", p.k, "] by [", p.k, ", ", p.n, "] to ", c.dtype(), ": ", cublasLtGetStatusString(plan.status));
  const Tensor to = p.add ? aligned(c, p.of_c) : room_for(c, p.of_c);
  run(device, plan, p.add, aligned(a, p.of_a), aligned(b, p.of_b), to);
  put_back(to, c);
}

bool multiply_with_epilogue(Cuda device, Epilogue epilogue, const CudaProduct& p, const Tensor& a, const Tensor& b,
                            const Tensor& vector, const Tensor& c) {
  const Plan& plan = plan_for(device, epilogue, p, a, b, c);
  if (plan.status != CUBLAS_STATUS_SUCCESS) return false;
  const bool written = epilogue == Epilogue::sum_a;
  const Tensor to = p.add ? aligned(c, p.of_c) : room_for(c, p.of_c);
  const Tensor operand = written ? room_for(vector) : aligned(vector);
  set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(operand.address()));
  run(device, plan, p.add, aligned(a, p.of_a), aligned(b, p.of_b), to);
  put_back(to, c);
  if (written) put_back(operand, vector);
  return true;
}

}  // namespace godwit
