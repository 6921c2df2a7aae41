// Stands in for the NCCL transport where NCCL was not found.
#include "comm/transport/group_nccl.h"

namespace godwit {

bool nccl_built() { return false; }
Communicator over_nccl(const Communicator&, std::chrono::milliseconds) { fail("this build has no NCCL"); }

}  // namespace godwit
