// Access to the memory of other ranks in this process. Internal to the transports.
#pragma once
#include <cstdint>

#include "engine/device.h"

namespace godwit {

// Enables access from kernels of the calling thread to the device `memory`, where a peer's tensor is; throws if
// impossible.
void reach(Cpu, Device memory);
void reach(Cuda device, Device memory);

// Threaded on the CPU; asynchronous on the thread's stream on a GPU, also from a peer's GPU after reach().
void copy_bytes(Cpu, const void* from, void* to, int64_t bytes);
void copy_bytes(Cuda device, const void* from, void* to, int64_t bytes);

}  // namespace godwit
