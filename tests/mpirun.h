// Starts a program under mpirun and collects its output.
#pragma once
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "comm/transport/mpi.h"
#include "tests/support.h"

namespace godwit {

struct MpiOutcome {
  int exit_code;
  std::string out, err;
  double seconds;

  bool says(const std::string& text) const { return err.find(text) != std::string::npos; }
};

// The reason why MPI cannot be tested in this build; empty if it can. Open MPI is not built for the thread sanitizer.
inline std::string no_mpirun() {
  if (!mpi_built()) return "this build has no MPI";
  if (std::string(GODWIT_SANITIZE).find("thread") != std::string::npos) return "Open MPI is invisible to TSan";
  return std::system("mpirun --version >/dev/null 2>&1") == 0 ? "" : "there is no mpirun";
}

// Runs all ranks on this host and allows more ranks than cores. Open MPI leaks memory at exit, so leak detection is
// off.
inline MpiOutcome mpirun(int ranks, const std::string& command, const TempFolder& folder) {
  const std::string line = "cd " + folder.str() + " && ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 timeout -k 5 300 " +
                           "mpirun --allow-run-as-root --oversubscribe -np " + std::to_string(ranks) + " " + command +
                           " >mpi.out 2>mpi.err </dev/null";
  const auto start = std::chrono::steady_clock::now();
  const int status = std::system(line.c_str());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Bytes out = read(folder / "mpi.out"), err = read(folder / "mpi.err");
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, {out.begin(), out.end()}, {err.begin(), err.end()}, seconds};
}

}  // namespace godwit
