// Checked calls of CUDA libraries. An Error contains the call, its source location and CUDA's message.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include "engine/check.h"

namespace godwit {

// Throws an Error unless `status` is success:
//   cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
void cuda_check(cudaError_t status, const char* call, const char* file = __builtin_FILE(), int line = __builtin_LINE());
void cuda_check(cublasStatus_t status, const char* call, const char* file = __builtin_FILE(),
                int line = __builtin_LINE());
void cuda_check(cudnnStatus_t status, const char* call, const char* file = __builtin_FILE(),
                int line = __builtin_LINE());

}  // namespace godwit
