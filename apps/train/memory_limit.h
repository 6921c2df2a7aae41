// Rejects a model that exceeds this machine's memory before its values are allocated.
#pragma once
#include <cstdint>
#include <string>

#include "apps/config/config.h"
#include "comm/group.h"

namespace godwit::apps {

// Bytes that a process may use: the physical memory, or the limit of its control group if the limit is lower.
int64_t host_memory();

// Throws if the parameters and gradients of this host's workers, each with `numel` float32 values, exceed `available`
// bytes. For sharded values, only the shards are counted. Other memory is not counted. No effect on a GPU.
void check_host_memory(const CommonConfig& config, const Communicator& comm, const std::string& model, int64_t numel,
                       int64_t available = host_memory());

// Throws if the `numel` float32 parameters of a model that only generates text exceed `available` bytes. No effect on a
// GPU.
void check_host_memory_of_parameters(const std::string& model, int64_t numel, int64_t available = host_memory());

}  // namespace godwit::apps
