// Refuses a model that this machine's memory cannot hold, before its values fill the memory for minutes.
#pragma once
#include <cstdint>
#include <string>

#include "apps/config/config.h"
#include "comm/group.h"

namespace godwit::apps {

// Bytes that a process may use: the physical memory, or the limit of its control group (memory.max) if that is lower.
int64_t host_memory();

// Throws if the parameters and gradients of this host's workers, each with `numel` float32 values, exceed `available`
// bytes. Counts what the sharding leaves of them, and nothing else. No effect on a GPU.
void check_host_memory(const CommonConfig& config, const Communicator& comm, const std::string& model, int64_t numel,
                       int64_t available = host_memory());

// The same for a model that only generates text, in one process: its `numel` parameters.
void check_host_memory_of_parameters(const std::string& model, int64_t numel, int64_t available = host_memory());

}  // namespace godwit::apps
