// Suspends the process of a test, as Ctrl-Z does.
#pragma once
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

namespace godwit::test {

// Suspends this process after 0.3 s, for three seconds.
inline void suspend_soon() {
  const std::string pid = std::to_string(getpid());
  const std::string line = "(sleep 0.3; kill -STOP " + pid + "; sleep 3; kill -CONT " + pid + ") >/dev/null 2>&1 &";
  (void)!std::system(line.c_str());
}

// Returns 0.3 s after this process was suspended for at least one second.
inline void wait_for_suspension() {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  for (auto last = now(), next = last; next - last < std::chrono::seconds(1); next = now()) {
    last = next;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  for (int i = 0; i < 6; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

}  // namespace godwit::test
