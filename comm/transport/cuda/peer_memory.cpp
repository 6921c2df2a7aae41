#include "comm/transport/peer_memory.h"

#include "engine/cuda/cuda_context.h"

namespace godwit {

void enable_peer_access(Cuda device, Device memory) {
  const int index = device.context->index;
  if (memory.index == index) return;
  device.context->cached<bool>({30, memory.index}, [&] {
    int possible = 0;
    cuda_check(cudaDeviceCanAccessPeer(&possible, index, memory.index), "cudaDeviceCanAccessPeer");
    check(possible != 0, "local transport: ", cuda_device(index), " cannot read the memory of ", memory,
          "; exchange through NCCL (--set nccl=true, in a build that has it), or share one GPU (--device ",
          cuda_device(index), ")");
    const cudaError_t status = cudaDeviceEnablePeerAccess(memory.index, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) cudaGetLastError();  // already enabled by another rank
    else cuda_check(status, "cudaDeviceEnablePeerAccess");
    return true;
  });
}

bool can_access_peers(int gpus) {
  for (int index = 0; index < gpus; ++index)
    for (int peer = 0; peer < gpus; ++peer) {
      int possible = 1;
      if (peer != index) cuda_check(cudaDeviceCanAccessPeer(&possible, index, peer), "cudaDeviceCanAccessPeer");
      if (possible == 0) return false;
    }
  return true;
}

void copy_bytes(Cuda device, const void* from, void* to, int64_t bytes) {
  if (bytes == 0) return;
  cuda_check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, device.stream),
             "cudaMemcpyAsync");
}

}  // namespace godwit
