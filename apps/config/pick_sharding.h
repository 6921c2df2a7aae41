// exchange.sharding=auto.
#pragma once
#include "apps/config/config.h"

namespace godwit::apps {

// Replaces exchange.sharding=auto once the topology is known: by hybrid on several nodes with several workers each, if
// optimizer and exchange support it, otherwise by the exchange's default. Adds a notice in the first case, and if only
// the support is missing.
void pick_sharding(CommonConfig& config);

}  // namespace godwit::apps
