// Checks a GPU and its libraries before their first use.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/device.h"

namespace godwit {

// Throws if the loaded library is older than the library used at build time. Versions are 10000 · major + 100 · minor +
// patch, as in cuDNN and NCCL. The patch is ignored.
void check_version(const char* library, int64_t loaded, int64_t built);

// Whether kernels compiled for `architectures` run on a GPU with this compute capability (90 for 9.0). `architectures`
// is CMAKE_CUDA_ARCHITECTURES with commas, such as "80,90-real". Names without a number, such as "native", count as
// running on every GPU.
bool runs_on(std::string_view architectures, int capability);

// Makes the GPU current for the calling thread. Throws if the process cannot use the GPU or the build has no kernels
// for it.
void open_gpu(int index);

// Advice for errors about memory of the current GPU: "; 12 bytes of 16 are free on cuda:0; lower --batch or …".
std::string memory_advice();

}  // namespace godwit
