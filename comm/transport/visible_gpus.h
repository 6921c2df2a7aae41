// Identifies the GPUs visible to this process. Internal to the MPI transport.
#pragma once
#include <string>

namespace godwit {

std::string visible_gpus();  // PCI bus IDs in device order, each followed by a space; empty without GPUs

}  // namespace godwit
