// Which GPUs this process sees. Internal to the MPI transport.
#pragma once
#include <string>

namespace godwit {

std::string visible_gpus();  // their places on the machine's bus, in order; empty where there are none

}  // namespace godwit
