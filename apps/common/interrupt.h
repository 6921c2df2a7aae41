// Ctrl-C and SIGTERM end the process at once.
#pragma once
#include <string>

namespace godwit::apps {

// From now on SIGINT and SIGTERM print `message` on stderr as one line and end the process with 128 + the signal's
// number (130 for Ctrl-C), without running destructors. A later call replaces the message.
void end_on_interrupt(const std::string& message);

}  // namespace godwit::apps
