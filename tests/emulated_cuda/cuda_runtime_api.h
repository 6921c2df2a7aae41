// The device-management part of CUDA's header with this name.
#pragma once
#include <cstdio>

#include "cuda_runtime.h"

cudaError_t cudaGetDevice(int* device);  // current device of the calling thread
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device);

struct cudaDeviceProp {
  char name[256];
};
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::snprintf(properties->name, sizeof properties->name, "emulated on the CPU");
  return cudaSuccess;
}
