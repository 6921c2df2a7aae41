// The choice of exchange.sharding=auto.
#pragma once
#include "apps/config/config.h"

namespace godwit::apps {

// Replaces exchange.sharding=auto. A continued run keeps its sharding if the other options support it. Otherwise, the
// choice depends on the topology: hybrid for several nodes with several workers each if the other options support it,
// and the exchange's default in all other cases. A notice names the choice. Call it once the topology is known.
void pick_sharding(CommonConfig& config);

}  // namespace godwit::apps
