// Calls of the CUDA libraries, checked: an Error names the call, its place, and what CUDA says.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <cudnn.h>

#include "engine/check.h"

namespace godwit {

//   cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
void cuda_check(cudaError_t status, const char* call, const char* file = __builtin_FILE(), int line = __builtin_LINE());
void cuda_check(cublasStatus_t status, const char* call, const char* file = __builtin_FILE(),
                int line = __builtin_LINE());
void cuda_check(cudnnStatus_t status, const char* call, const char* file = __builtin_FILE(),
                int line = __builtin_LINE());

}  // namespace godwit
