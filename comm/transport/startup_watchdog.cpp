#include "comm/transport/startup_watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "engine/check.h"
#include "engine/start_thread.h"

namespace godwit {
namespace {

constexpr std::chrono::seconds kOthers{2};  // extra wait of other ranks; the launcher usually kills them first
constexpr std::chrono::milliseconds kStartSlice{500};

}  // namespace

StartupWatchdog::StartupWatchdog(int rank, std::chrono::milliseconds timeout)
    : thread_(start_thread([this, rank, timeout] { watch(rank, timeout); },
                           detail::concat("the thread of rank ", rank, " that watches the start"),
                           " or start fewer ranks on this machine")) {}

StartupWatchdog::~StartupWatchdog() {
  {
    std::lock_guard lock(mutex_);
    started_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StartupWatchdog::watch(int rank, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  // The loop counts slices, so the time in which the process is suspended does not count.
  for (auto left = rank == 0 ? timeout : timeout + kOthers; left.count() > 0; left -= kStartSlice)
    if (changed_.wait_for(lock, std::min(left, kStartSlice), [&] { return started_; })) return;
  const std::string text =
      detail::concat("rank ", rank, ": not all ranks started within ", static_cast<double>(timeout.count()) / 1000,
                     " s; a process of the launch may hang, be another program, or have ended");
  std::fprintf(stderr, "%s\n", text.c_str());
  ::_exit(1);
}

}  // namespace godwit
