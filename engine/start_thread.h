// Starts threads. If the system refuses, throws an Error that names the thread and the remedy.
#pragma once
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/check.h"

namespace godwit {

// Starts a std::thread or std::jthread that runs f(). `what`: "thread 2 of 4 of the loader". `remedy`: " or lower
// data.workers". After an Error, the caller must join the threads that it started before.
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
