#include "comm/transport/placement.h"

#include "comm/transport/group_nccl.h"
#include "comm/transport/peer_memory.h"
#include "engine/check.h"

namespace godwit {
namespace {

bool named(const Placement& placement) { return placement.device.starts_with("cuda:"); }

}  // namespace

Device device_of(const Placement& placement, int local_rank, int local_ranks) {
  const Device device = parse_device(placement.device, "--device", local_rank);
  if (!device.is_cuda()) return device;
  check_usable(named(placement) ? device : cuda_device(0));
  if (named(placement)) return device;
  const int gpus = cuda_devices();
  check(local_ranks <= gpus || placement.share_gpu, "--device ", placement.device, ": ", local_ranks,
        " workers on this machine, but ", gpus, gpus == 1 ? " GPU" : " GPUs",
        "; start fewer (--nodes, --workers-per-node), or let workers share a GPU with --set share_gpu=true");
  return cuda_device(local_rank % gpus);
}

bool exchanges_by_nccl(const Placement& placement, int local_ranks) {
  const Device device = device_of(placement, 0, local_ranks);
  return placement.nccl && nccl_built() && device.is_cuda() &&
         local_ranks <= (named(placement) ? 1 : cuda_devices());
}

bool threads_exchange_by_nccl(const Placement& placement, int local_ranks) {
  return exchanges_by_nccl(placement, local_ranks) &&
         (placement.nccl_between_threads || !can_access_peers(local_ranks));
}

}  // namespace godwit
