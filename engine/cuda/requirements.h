// Checks of a GPU and its libraries before their first use.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/device.h"

namespace godwit {

// Throws if the loaded library is older than the library of the build. Versions are 10000 · major + 100 · minor +
// patch, as in cuDNN and NCCL; the patch is ignored.
void check_version(const char* library, int64_t loaded, int64_t built);

// Whether kernels that were compiled for `architectures` run on a GPU of this compute capability (90 for 9.0). The text
// is CMAKE_CUDA_ARCHITECTURES with commas, such as "80,90-real". Names without a number, such as "native", run
// anywhere.
bool runs_on(std::string_view architectures, int capability);

// Makes the GPU current for the calling thread. Throws unless the process can use it and the build has kernels for it.
void open_gpu(int index);

// "; 12 bytes of 16 are free on cuda:0; lower --batch or …", for errors about memory of the current GPU.
std::string memory_advice();

}  // namespace godwit
