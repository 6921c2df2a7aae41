// Access to the memory of other ranks in this process. Internal to the transports.
#pragma once
#include <cstdint>

#include "engine/device.h"

namespace godwit {

// Lets kernels of the calling thread access a peer's tensor on the device `memory`. Throws if the GPUs do not support
// peer access.
void enable_peer_access(Cpu, Device memory);
void enable_peer_access(Cuda device, Device memory);

// Whether each of the GPUs 0 … gpus−1 can access the memory of the others.
bool can_access_peers(int gpus);

// Copies `bytes` bytes. On the CPU, the copy is multithreaded. On a GPU, it is asynchronous on the thread's stream;
// `from` may be on a peer's GPU after enable_peer_access().
void copy_bytes(Cpu, const void* from, void* to, int64_t bytes);
void copy_bytes(Cuda device, const void* from, void* to, int64_t bytes);

}  // namespace godwit
