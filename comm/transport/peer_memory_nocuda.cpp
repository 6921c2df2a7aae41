#include "comm/transport/peer_memory.h"

namespace godwit {

bool can_access_peers(int) { return true; }

}  // namespace godwit
