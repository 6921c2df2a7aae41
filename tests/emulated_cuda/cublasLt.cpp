#include "cublasLt.h"

#include <algorithm>
#include <vector>

#include "races.h"

struct cublasLtContext {};
struct cublasLtMatmulPreferenceStruct {};
struct cublasLtMatmulDescStruct {
  cublasComputeType_t compute;
  cudaDataType scale;
  int32_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  int64_t bias_stride = 0;
};
struct cublasLtMatrixLayoutStruct {  // column-major
  cudaDataType type;
  uint64_t rows, columns;
  int64_t ld;
  int32_t batch = 1;
  int64_t stride = 0;
};

namespace {

size_t bytes_of(cudaDataType type) { return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2; }

double load(cudaDataType type, const void* data, int64_t i) {
  emulated::note_read(static_cast<const std::byte*>(data) + i * static_cast<int64_t>(bytes_of(type)), bytes_of(type));
  if (type == CUDA_R_64F) return static_cast<const double*>(data)[i];
  if (type == CUDA_R_32F) return static_cast<double>(static_cast<const float*>(data)[i]);
  return static_cast<double>(std::bit_cast<float>(uint32_t{static_cast<const uint16_t*>(data)[i]} << 16));
}

void store(cudaDataType type, void* data, int64_t i, double value) {
  emulated::note_write(static_cast<std::byte*>(data) + i * static_cast<int64_t>(bytes_of(type)), bytes_of(type));
  if (type == CUDA_R_64F) {
    static_cast<double*>(data)[i] = value;
  } else if (type == CUDA_R_32F) {
    static_cast<float*>(data)[i] = static_cast<float>(value);
  } else {
    const auto u = std::bit_cast<uint32_t>(static_cast<float>(value));
    static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
  }
}

template <class T>
cublasStatus_t set(T& to, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// The type combinations that cuBLASLt documents. Epilogues are supported for 32- and 16-bit types only.
bool supported(const cublasLtMatmulDescStruct& desc, cudaDataType a, cudaDataType b, cudaDataType c, cudaDataType d) {
  if (a != b || c != d) return false;
  if (desc.epilogue == CUBLASLT_EPILOGUE_BGRADB && desc.trans_b != CUBLAS_OP_T) return false;
  if (desc.compute == CUBLAS_COMPUTE_64F)
    return desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT && desc.scale == CUDA_R_64F && a == CUDA_R_64F && d == CUDA_R_64F;
  if (desc.scale != CUDA_R_32F) return false;
  if (desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32) return a == CUDA_R_32F && d == CUDA_R_32F;
  return (a == CUDA_R_32F && d == CUDA_R_32F) || (a == CUDA_R_16BF && (d == CUDA_R_16BF || d == CUDA_R_32F));
}

uint64_t inner(const cublasLtMatmulDescStruct& desc, const cublasLtMatrixLayoutStruct& a) {
  return desc.trans_a == CUBLAS_OP_T ? a.rows : a.columns;
}

// Rounds to TF32: 10 explicit significand bits.
double rounded(const cublasLtMatmulDescStruct& desc, double value) {
  if (desc.compute != CUBLAS_COMPUTE_32F_FAST_TF32) return value;
  const auto u = std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<double>(std::bit_cast<float>((u + 0xFFFu + ((u >> 13) & 1u)) & 0xFFFFE000u));
}

bool fits(const cublasLtMatrixLayoutStruct& layout, uint64_t rows, uint64_t columns, int32_t batch) {
  return layout.rows == rows && layout.columns == columns && layout.ld >= static_cast<int64_t>(rows) &&
         layout.batch == batch;
}

int64_t at(size_t row, size_t column, const cublasLtMatrixLayoutStruct& layout) {
  return static_cast<int64_t>(row) + static_cast<int64_t>(column) * layout.ld;
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t) { return "an error of the emulator"; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : "CUBLAS_STATUS_NOT_SUPPORTED";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return *handle = new cublasLtContext, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return delete handle, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType scale) {
  return *desc = new cublasLtMatmulDescStruct{compute, scale}, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return delete desc, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(desc->trans_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(desc->trans_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(desc->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return set(desc->bias_stride, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  return *layout = new cublasLtMatrixLayoutStruct{type, rows, columns, ld}, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return delete layout, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return set(layout->batch, value, bytes);
  return set(layout->stride, value, bytes);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return *preference = new cublasLtMatmulPreferenceStruct, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return delete preference, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void*,
                                                    size_t bytes) {
  const bool workspace = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  return bytes == (workspace ? sizeof(uint64_t) : sizeof(uint32_t)) ? CUBLAS_STATUS_SUCCESS
                                                                    : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  if (wanted < 1 || !supported(*desc, a->type, b->type, c->type, d->type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  // Some products have no algorithm with an epilogue.
  if (desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
      (!desc->bias || inner(*desc, *a) % 8 == 5 || !emulated_blas::epilogues))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  results[0] = {};
  results[0].workspaceSize = 1 << 16;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t*, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const auto al = *a_layout, bl = *b_layout, cl = *c_layout, dl = *d_layout;
  if (!supported(*desc, al.type, bl.type, cl.type, dl.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!workspace || workspace_bytes < (1 << 16)) return CUBLAS_STATUS_INVALID_VALUE;
  if (desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT && inner(*desc, al) % 8 == 5) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool ta = desc->trans_a == CUBLAS_OP_T, tb = desc->trans_b == CUBLAS_OP_T;
  const uint64_t m = dl.rows, n = dl.columns, k = inner(*desc, al);
  if (!fits(al, ta ? k : m, ta ? m : k, dl.batch) || !fits(bl, tb ? n : k, tb ? k : n, dl.batch) ||
      !fits(cl, m, n, dl.batch) || dl.ld < static_cast<int64_t>(m))
    return CUBLAS_STATUS_INVALID_VALUE;
  ++emulated_blas::products;
  if (al.type == CUDA_R_32F)
    ++(desc->compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? emulated_blas::in_tf32 : emulated_blas::in_float32);
  const double by = load(desc->scale, alpha, 0), keep = load(desc->scale, beta, 0);
  const auto multiply = [=, desc = *desc] {
    emulated::note_write(workspace, workspace_bytes);
    const auto rows = static_cast<size_t>(m), columns = static_cast<size_t>(n), terms = static_cast<size_t>(k);
    std::vector<double> left(terms * rows), right(columns * terms), sums(rows);  // factors by [l][i] and [j][l]
    for (int64_t entry = 0; entry < dl.batch; ++entry) {
      for (size_t l = 0; l < terms; ++l)
        for (size_t i = 0; i < rows; ++i)
          left[l * rows + i] = rounded(desc, load(al.type, a, entry * al.stride + (ta ? at(l, i, al) : at(i, l, al))));
      for (size_t j = 0; j < columns; ++j)
        for (size_t l = 0; l < terms; ++l)
          right[j * terms + l] =
              rounded(desc, load(bl.type, b, entry * bl.stride + (tb ? at(j, l, bl) : at(l, j, bl))));
      for (size_t j = 0; j < columns; ++j) {
        std::fill(sums.begin(), sums.end(), 0.0);
        for (size_t l = 0; l < terms; ++l) {
          const double *factors = left.data() + l * rows, factor = right[j * terms + l];
          for (size_t i = 0; i < rows; ++i) sums[i] += factors[i] * factor;
        }
        for (size_t i = 0; i < rows; ++i) {
          double sum = sums[i] * by;
          if (keep != 0) sum += keep * load(cl.type, c, entry * cl.stride + at(i, j, cl));
          // one bias value per row
          if (desc.epilogue == CUBLASLT_EPILOGUE_BIAS)
            sum += load(dl.type, desc.bias, entry * desc.bias_stride + static_cast<int64_t>(i));
          store(dl.type, d, entry * dl.stride + at(i, j, dl), sum);
        }
      }
    }
    for (int64_t entry = 0; entry < dl.batch && desc.epilogue == CUBLASLT_EPILOGUE_BGRADB; ++entry)
      for (int64_t j = 0; j < static_cast<int64_t>(n); ++j) {  // one bias gradient per column
        double sum = 0;
        for (int64_t l = 0; l < static_cast<int64_t>(k); ++l)
          sum += load(bl.type, b, entry * bl.stride + j + l * bl.ld);
        store(dl.type, desc.bias, entry * desc.bias_stride + j, sum);
      }
    return cudaSuccess;
  };
  ++emulated::counts.launches;
  const cudaError_t status = emulated::give(stream, {"cublasLtMatmul"}, multiply);
  return status == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
