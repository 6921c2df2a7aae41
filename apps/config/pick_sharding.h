// The choice of exchange.sharding=auto.
#pragma once
#include "apps/config/config.h"

namespace godwit::apps {

// Replaces exchange.sharding=auto. A continued run keeps its sharding, if the other options support it. Otherwise, once
// the topology is known, several nodes with several workers each get hybrid, if the other options support it, and
// everything else gets the exchange's default. A notice names the choice.
void pick_sharding(CommonConfig& config);

}  // namespace godwit::apps
