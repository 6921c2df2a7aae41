// Access to the memory of other ranks in this process. Internal to the transports.
#pragma once
#include <cstdint>

#include "engine/device.h"

namespace godwit {

// Lets kernels of the calling thread access a peer's tensor on the device `memory`; throws if the GPUs cannot.
void enable_peer_access(Cpu, Device memory);
void enable_peer_access(Cuda device, Device memory);

// Copies `bytes` bytes: threaded on the CPU; asynchronous on the thread's stream on a GPU, also from a peer's GPU after
// enable_peer_access().
void copy_bytes(Cpu, const void* from, void* to, int64_t bytes);
void copy_bytes(Cuda device, const void* from, void* to, int64_t bytes);

}  // namespace godwit
