#include "apps/common/interrupt.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>

namespace godwit::apps {
namespace {

// Signals belong to the process, and a handler may only touch what is ready: two texts, of which one is in use.
constexpr size_t kCapacity = 4096;
struct Text {
  char bytes[kCapacity];
  size_t size;
};
Text texts[2];
std::atomic<const Text*> current{nullptr};
static_assert(std::atomic<const Text*>::is_always_lock_free);

void end_process(int signal) {
  const Text* text = current.load();
  ssize_t written = ::write(STDERR_FILENO, text->bytes, text->size);
  static_cast<void>(written);
  ::_exit(128 + signal);
}

}  // namespace

void end_on_interrupt(const std::string& message) {
  Text* text = current.load() == &texts[0] ? &texts[1] : &texts[0];
  // On a terminal a progress bar or the echoed ^C may stand on the line.
  const std::string line = (::isatty(STDERR_FILENO) ? "\r\x1b[K" : "") + message.substr(0, kCapacity - 16) + "\n";
  std::memcpy(text->bytes, line.data(), line.size());
  text->size = line.size();
  current.store(text);
  struct sigaction action = {};
  action.sa_handler = end_process;
  sigfillset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

}  // namespace godwit::apps
