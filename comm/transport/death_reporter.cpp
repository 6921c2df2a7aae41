#include "comm/transport/death_reporter.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace godwit {
namespace {

constexpr size_t kBytes = 128;
constexpr int kPipe = 3, kPhase = 4;  // descriptors of the child
constexpr const char* kScript =
    R"(read -r _ <&3; phase=$(tr -d '\0' <&4); [ -z "$phase" ] || )"
    R"(printf "phase '%s': %s has ended; its process was killed or has crashed\n" "$phase" "$1" >&2)";

bool spawn(const std::string& who, int pipe, int phase) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe, kPipe);
  posix_spawn_file_actions_adddup2(&actions, phase, kPhase);
  posix_spawn_file_actions_addclosefrom_np(&actions, kPhase + 1);  // connections of MPI must close with this process
  sigset_t blocked;  // in the child: no signal, even if this thread blocks some
  sigemptyset(&blocked);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &blocked);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const char* arguments[] = {"sh", "-c", kScript, "sh", who.c_str(), nullptr};
  pid_t child = 0;
  const int error = posix_spawn(&child, "/bin/sh", &actions, &attributes, const_cast<char**>(arguments), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0;
}

// Moves a descriptor above kPhase, so that one dup2() does not close the source of the other.
int move_up(int descriptor) {
  const int moved = ::fcntl(descriptor, F_DUPFD_CLOEXEC, kPhase + 1);
  ::close(descriptor);
  return moved;
}

}  // namespace

DeathReporter::DeathReporter(const std::string& who) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;
  const int read = move_up(ends[0]), memory = move_up(::memfd_create("godwit-phase", MFD_CLOEXEC));
  alive_ = ends[1];
  if (read >= 0 && memory >= 0 && ::ftruncate(memory, kBytes) == 0) {
    void* mapped = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (mapped != MAP_FAILED && spawn(who, read, memory)) phase_ = static_cast<char*>(mapped);
  }
  ::close(read);
  ::close(memory);
}

DeathReporter::~DeathReporter() {
  set_phase("");
  if (phase_) ::munmap(phase_, kBytes);
  if (alive_ >= 0) ::close(alive_);
}

void DeathReporter::set_phase(std::string_view phase) {
  const std::lock_guard lock(mutex_);
  if (!phase_) return;
  const size_t length = std::min(phase.size(), kBytes - 1);
  std::memcpy(phase_, phase.data(), length);
  std::memset(phase_ + length, 0, kBytes - length);
}

}  // namespace godwit
