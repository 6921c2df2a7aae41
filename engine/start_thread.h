// Starting threads: where the system refuses one, an Error says which, and what helps.
#pragma once
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/check.h"

namespace godwit {

// A std::thread or std::jthread that runs f(). `what`: "thread 2 of 4 of the loader"; `remedy`: " or lower
// data.workers". Threads that were started before are the caller's to join.
template <class Thread = std::thread, class F>
Thread start_thread(F&& f, const std::string& what, const std::string& remedy = "") {
  try {
    return Thread(std::forward<F>(f));
  } catch (const std::system_error& error) {
    fail("cannot start ", what, ": ", error.code().message(),
         "; raise the limits of processes and memory (ulimit -u, ulimit -v)", remedy);
  }
}

}  // namespace godwit
