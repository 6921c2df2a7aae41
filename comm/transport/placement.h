// Placement: which device each rank works on, and how GPUs exchange.
#pragma once
#include <string>

#include "engine/device.h"

namespace godwit {

struct Placement {
  std::string device = "cpu";  // as parse_device() takes it; "cuda:N" gives all ranks of a machine the same GPU
  bool share_gpu = false;      // "cuda" for more ranks than GPUs: they take turns at them
  bool nccl = true;            // ranks on GPUs of their own exchange through NCCL, where the build has it
};

// Of one of the `local_ranks` of a machine. Throws where there is no such device, or are not enough.
Device device_of(const Placement& placement, int local_rank, int local_ranks);

// No two of the ranks of a machine work on one GPU, and they may, and can, exchange through NCCL.
bool exchanges_by_nccl(const Placement& placement, int local_ranks);

}  // namespace godwit
