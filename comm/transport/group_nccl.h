// The NCCL transport: ranks on GPUs of their own, in one process or many.
#pragma once
#include <chrono>

#include "comm/group.h"

namespace godwit {

bool nccl_built();  // this build has NCCL

// Groups of the same ranks whose tensors on GPUs go through NCCL, in the calling thread's stream; a call returns when
// the result is there, and NCCL's errors, a failed rank or the timeout end it with an Error. Sums are in NCCL's order:
// the same bits on all ranks, not those of the other transports. Tensors of the CPU and barriers go through `host`,
// which also brings NCCL's ranks together, when a group is first used.
Communicator over_nccl(const Communicator& host, std::chrono::milliseconds timeout);

}  // namespace godwit
