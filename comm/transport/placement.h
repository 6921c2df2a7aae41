// Placement: the device of each rank, and whether GPUs communicate through NCCL.
#pragma once
#include <string>

#include "engine/device.h"

namespace godwit {

// The device on which each rank of a machine runs.
struct Placement {
  std::string device = "cpu";  // text for parse_device(); "cuda:N" puts all ranks of a machine on one GPU
  bool share_gpu = false;      // allows "cuda" with more ranks than GPUs; ranks are then assigned round-robin
  bool nccl = true;            // use NCCL if the build has it and no two ranks share a GPU
};

// Device of rank `local_rank` of the `local_ranks` ranks on this machine. Throws if the device does not exist, or if
// there are too few GPUs.
Device device_of(const Placement& placement, int local_rank, int local_ranks);

// Whether the ranks of this machine communicate through NCCL: it is enabled and built in, and each rank has a separate
// GPU.
bool exchanges_by_nccl(const Placement& placement, int local_ranks);

}  // namespace godwit
