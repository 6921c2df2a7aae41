// The NCCL transport: every rank has a separate GPU, in one process or many.
#pragma once
#include <chrono>

#include "comm/group.h"

namespace godwit {

bool nccl_built();  // whether this build has NCCL

// Returns groups with the same ranks as `host`, for the calling thread's GPU. Collectives on GPU tensors run through
// NCCL on the calling thread's stream. A call returns when NCCL has put the work into the stream; only the first call
// of each phase waits for the result. CPU tensors and barriers use `host`, which also connects the NCCL ranks on a
// group's first use.
//
// After an error of NCCL, a failure of a rank, or a timeout, all collectives of the rank are aborted. Later calls, and
// waits of the host for the rank's streams, then throw an Error with the reason.
//
// Sums are in NCCL's order: they are bit-identical on all ranks, but differ from the other transports.
Communicator with_nccl(const Communicator& host, std::chrono::milliseconds timeout);

}  // namespace godwit
