// Kernels with faults that scripts/check_kernels must find. The name of a kernel lists its faults.
// The limits are 64 registers, 1024 bytes of shared memory, an occupancy of 60 %, and a 128-bit load and store.
#include <cstdint>

__device__ int64_t thread() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

// Divides once, before the loop.
extern "C" __global__ void __launch_bounds__(256) good(const float4* from, float4* to, int64_t n, int64_t width) {
  const int64_t row = thread() / width;
  for (int64_t i = thread(); i < n; i += 1024) to[i] = from[i + row];
}

extern "C" __global__ void unbounded(const float4* from, float4* to) { to[thread()] = from[thread()]; }

// A multiprocessor holds 32 blocks: half of its warps.
extern "C" __global__ void __launch_bounds__(32) occupancy(const float4* from, float4* to) {
  to[thread()] = from[thread()];
}

extern "C" __global__ void __launch_bounds__(256) scalar(const float* from, float* to, int64_t n) {
  for (int64_t i = thread(); i < n; i += 1024) to[i] = from[i];
}

extern "C" __global__ void __launch_bounds__(256) division(const float4* from, float4* to, int64_t n, int64_t width) {
  for (int64_t i = thread(); i < n; i += 1024) to[i] = from[i / width];
}

// The remainder is computed behind a condition, so the compiler may move its block behind the loop.
extern "C" __global__ void __launch_bounds__(256)
    division_scalar(const float* from, float* to, int64_t n, int64_t width) {
  for (int64_t i = thread(); i < n; i += 1024) {
    if (__builtin_expect(from[i] > 1, 0)) to[i % width] = 2;
    to[i + n] = 1;
  }
}

// An array with computed indices.
extern "C" __global__ void __launch_bounds__(256) local(const float4* from, float4* to, int64_t n, const int* order) {
  float4 values[16];
  for (int i = 0; i < 16; ++i) values[i] = from[thread() + n * i];
  for (int i = 0; i < 16; ++i) to[thread() + n * i] = values[order[i] & 15];
}

// Spills: 64 values are alive, and 32 registers allowed.
extern "C" __global__ void __launch_bounds__(1024, 2) local_scalar(const float* from, float* to, int64_t n) {
  float values[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) values[i] = from[thread() + n * i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 64; ++i) to[thread() + n * i] = values[i] * values[63 - i];
}

extern "C" __global__ void __launch_bounds__(256) occupancy_registers(const float4* from, float4* to, int64_t n) {
  float4 values[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) values[i] = from[thread() + n * i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 32; ++i) to[thread() + n * i] = values[31 - i];
}

extern "C" __global__ void __launch_bounds__(256) shared(const float4* from, float4* to) {
  __shared__ float4 values[256];
  values[threadIdx.x] = from[thread()];
  __syncthreads();
  to[thread()] = values[255 - threadIdx.x];
}
