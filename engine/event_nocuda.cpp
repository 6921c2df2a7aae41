#include "engine/event.h"

namespace godwit {

Event Event::record() { return {}; }
void Event::wait() const {}
void Event::block() const {}

}  // namespace godwit
