// Checks that all processes of a run have the same build and the same configuration.
#pragma once
#include <string>

#include "apps/config/config.h"
#include "comm/group.h"

namespace godwit::apps {

// Collective. Throws on every rank if `own`, the build_identity(), differs between ranks.
void check_same_build(Group& group, const std::string& own);
// Collective. If configurations differ, every rank throws an Error that names the keys and the ranks that differ from
// rank 0. Paths and threads may differ between hosts.
void check_same_config(Group& group, const CommonConfig& config);

}  // namespace godwit::apps
