#include "comm/transport/visible_gpus.h"

#include <cuda_runtime_api.h>

#include "engine/cuda/call.h"
#include "engine/device.h"

namespace godwit {

std::string visible_gpus() {
  std::string bus_ids;
  for (int index = 0; index < cuda_devices(); ++index) {
    char bus_id[32] = "";
    cuda_check(cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), index), "cudaDeviceGetPCIBusId");
    bus_ids.append(bus_id).append(" ");
  }
  return bus_ids;
}

}  // namespace godwit
