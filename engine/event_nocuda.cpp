#include "engine/event.h"

namespace godwit {

StreamMark StreamMark::now() { return {}; }
void StreamMark::hold() const {}

}  // namespace godwit
