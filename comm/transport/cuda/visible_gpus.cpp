#include "comm/transport/visible_gpus.h"

#include <cuda_runtime_api.h>

#include "engine/cuda/call.h"
#include "engine/device.h"

namespace godwit {

std::string visible_gpus() {
  std::string places;
  for (int index = 0; index < cuda_devices(); ++index) {
    char place[32] = "";
    cuda_check(cudaDeviceGetPCIBusId(place, sizeof(place), index), "cudaDeviceGetPCIBusId");
    places.append(place).append(" ");
  }
  return places;
}

}  // namespace godwit
