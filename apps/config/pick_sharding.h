// The choice of exchange.sharding=auto.
#pragma once
#include "apps/config/config.h"

namespace godwit::apps {

// Replaces exchange.sharding=auto once the topology is known. Several nodes with several workers each get hybrid, if
// the other options support it, and a notice of the choice. Everything else gets the exchange's default.
void pick_sharding(CommonConfig& config);

}  // namespace godwit::apps
