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
  // Use NCCL also between threads whose GPUs can access each other's memory. Then a memory allocation of one rank can
  // wait for a collective that waits for this rank, and the run hangs (issue 787 of NCCL).
  bool nccl_between_threads = false;
};

// Device of rank `local_rank` of the `local_ranks` ranks on this machine. Throws if the device does not exist, or if
// there are too few GPUs.
Device device_of(const Placement& placement, int local_rank, int local_ranks);

// Whether the ranks of this machine, which are processes, communicate through NCCL: it is enabled and built in, and
// each rank has a separate GPU.
bool exchanges_by_nccl(const Placement& placement, int local_ranks);
// The same for ranks that are threads. They prefer access to each other's memory, unless nccl_between_threads is set.
bool threads_exchange_by_nccl(const Placement& placement, int local_ranks);

}  // namespace godwit
