// Starts a program under mpirun and collects its output.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

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

// The reason why MPI cannot be tested in this build; empty if it can be tested. Open MPI is not built for the thread
// sanitizer.
inline std::string no_mpirun() {
  if (!mpi_built()) return "this build has no MPI";
  if (std::string(GODWIT_SANITIZE).find("thread") != std::string::npos) return "TSan cannot check Open MPI";
  return std::system("mpirun --version >/dev/null 2>&1") == 0 ? "" : "there is no mpirun";
}

// The reason why tools/netlab cannot run on this system; empty if it can run.
inline std::string no_netlab() {
  if (const std::string reason = no_mpirun(); !reason.empty()) return reason;
  if (geteuid() != 0) return "network namespaces need root";
  const char* links =
      "unshare -n sh -c 'ip link add v0 type veth peer name v1 && ip link add v2 type bridge && "
      "tc qdisc add dev v0 root tbf rate 1gbit burst 128kb limit 4mb' >/dev/null 2>&1";
  return std::system(links) == 0 ? "" : "no network namespaces";
}

// Runs `line` with the shell in the folder. Leak detection is off, because Open MPI leaks memory at exit.
inline MpiOutcome run_line(const std::string& line, const TempFolder& folder) {
  // GoogleTest may run a part of this test program. A program that it starts must run all its tests.
  const std::string whole =
      "unset GTEST_TOTAL_SHARDS GTEST_SHARD_INDEX; export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0; cd '" +
      folder.str() + "' && " + line + " >mpi.out 2>mpi.err </dev/null";
  const auto start = std::chrono::steady_clock::now();
  const int status = std::system(whole.c_str());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Bytes out = read(folder / "mpi.out"), err = read(folder / "mpi.err");
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, {out.begin(), out.end()}, {err.begin(), err.end()}, seconds};
}

// The command tools/netlab with these arguments.
inline MpiOutcome netlab(const std::string& arguments, const TempFolder& folder) {
  return run_line("timeout -k 5 300 '" GODWIT_SHELL_SOURCE_DIR "/tools/netlab' " + arguments, folder);
}

// Runs all ranks on this host and allows more ranks than cores.
inline MpiOutcome mpirun(int ranks, const std::string& command, const TempFolder& folder) {
  return run_line(
      "timeout -k 5 300 mpirun --allow-run-as-root --oversubscribe -np " +
          std::to_string(ranks) + " " + command,
      folder);
}

}  // namespace godwit
