// Memory of other ranks of this process, and plain copies. Internal to the transports.
#pragma once
#include <cstdint>

#include "engine/device.h"

namespace godwit {

// Makes `memory`, where a peer's tensor is, reachable from kernels of the calling thread; throws where it cannot be.
void reach(Cpu, Device memory);
void reach(Cuda device, Device memory);

void copy_bytes(Cpu, const void* from, void* to, int64_t bytes);
void copy_bytes(Cuda device, const void* from, void* to, int64_t bytes);

}  // namespace godwit
