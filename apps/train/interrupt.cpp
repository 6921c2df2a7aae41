#include "apps/train/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <iterator>

#include "engine/start_thread.h"

namespace godwit::apps {
namespace {

// Signal handlers may only use prepared data: two buffers of texts, one of them in use.
constexpr size_t kCapacity = 4096;
struct Text {
  char bytes[kCapacity];
  size_t size;
};
struct Caught {
  int signal;
  const char* name;
};
constexpr Caught kCaught[] = {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGUSR2, "SIGUSR2"}};
struct Texts {
  Text asked[std::size(kCaught)], ended;
};
Texts prepared[2], silence;
std::atomic<const Texts*> current{nullptr};
std::atomic<int> received{0};
std::atomic<int64_t> received_at{0};  // time of the first signal in nanoseconds; 0: none
constexpr int64_t kTogether = 1'000'000'000;
std::atomic<bool> wants_checkpoint{false};
static_assert(std::atomic<const Texts*>::is_always_lock_free && std::atomic<int>::is_always_lock_free &&
              std::atomic<int64_t>::is_always_lock_free);

void say(const Text& text) {
  const int error = errno;
  const ssize_t written = ::write(STDERR_FILENO, text.bytes, text.size);
  static_cast<void>(written);
  errno = error;
}

int64_t monotonic_ns() {
  timespec time = {};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void on_checkpoint_signal(int) { wants_checkpoint.store(true); }

void on_signal(int signal) {
  const Texts* said = current.load();
  int64_t first = 0;
  const int64_t now = monotonic_ns();
  if (received_at.compare_exchange_strong(first, now)) {
    received.store(signal);
    for (size_t i = 0; i < std::size(kCaught); ++i)
      if (kCaught[i].signal == signal) say(said->asked[i]);
    return;
  }
  if (signal == SIGHUP || signal == SIGUSR2 || now - first < kTogether) return;
  say(said->ended);
  ::_exit(128 + signal);
}

void put(Text& text, const std::string& message) {
  // Clears the terminal line, which may contain a progress bar or the echoed ^C.
  const std::string line = (::isatty(STDERR_FILENO) ? "\r\x1b[K" : "") + message.substr(0, kCapacity - 16) + "\n";
  text.size = message.empty() ? 0 : line.size();
  std::memcpy(text.bytes, line.data(), text.size);
}

}  // namespace

void handle_signals_in_thread() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  for (const Caught& caught : kCaught) sigaddset(&signals, caught.signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const auto handle = [signals] {
    ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    for (;;) ::pause();
  };
  start_thread(handle, "the thread that handles signals").detach();
}

void catch_interrupts(const std::string& asked, const std::string& ended) {
  Texts* next = current.load() == &prepared[0] ? &prepared[1] : &prepared[0];
  for (size_t i = 0; i < std::size(kCaught); ++i)
    put(next->asked[i], asked.empty() ? "" : std::string(kCaught[i].name) + ": " + asked);
  put(next->ended, ended);
  current.store(next);
  received.store(0);
  received_at.store(0);
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigfillset(&action.sa_mask);
  for (const Caught& caught : kCaught) {
    struct sigaction before = {};
    ::sigaction(caught.signal, nullptr, &before);
    if (caught.signal != SIGHUP || before.sa_handler != SIG_IGN) ::sigaction(caught.signal, &action, nullptr);
  }
}

void silence_interrupts() {
  if (current.load()) current.store(&silence);
}

int interrupted() {
  const int signal = received.load();
  return signal == SIGUSR2 ? SIGTERM : signal;
}

void catch_checkpoint_signal() {
  struct sigaction action = {};
  action.sa_handler = on_checkpoint_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &action, nullptr);
}

bool take_checkpoint_signal() { return wants_checkpoint.exchange(false); }

}  // namespace godwit::apps
