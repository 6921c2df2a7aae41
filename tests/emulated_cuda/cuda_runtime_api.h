// Of CUDA's header of this name: what devices are.
#pragma once
#include "cuda_runtime.h"

cudaError_t cudaGetDevice(int* device);  // of the calling thread
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device);
