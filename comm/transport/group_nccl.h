// The NCCL transport: every rank has its own GPU, in one process or many.
#pragma once
#include <chrono>

#include "comm/group.h"

namespace godwit {

bool nccl_built();  // whether this build has NCCL

// Returns groups of the same ranks as `host`. Collectives on GPU tensors run through NCCL on the calling thread's
// stream and return when the result is ready. NCCL errors, a failed rank and the timeout throw an Error. Sums are in
// NCCL's order: bit-identical on all ranks, but not to the other transports. CPU tensors and barriers go through
// `host`, which also connects the NCCL ranks on a group's first use.
Communicator with_nccl(const Communicator& host, std::chrono::milliseconds timeout);

}  // namespace godwit
