#include "comm/transport/session_mpi.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "comm/transport/launcher.h"
#include "engine/context.h"
#include "engine/process_limits.h"

namespace godwit {

void check_mpi(int result, const char* operation) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  fail(operation, ": ", std::string(text, static_cast<size_t>(length)));
}

MpiSession& MpiSession::instance() {
  static MpiSession session;
  return session;
}

MpiSession::MpiSession() {
  const std::optional<Launcher> launched = launcher();
  int started = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&started);
  if (!started) {
    // Ranks that wait inside MPI yield their core, since there may be more ranks than cores.
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
    ours_ = true;
  } else {
    MPI_Query_thread(&level);
  }
  check(level == MPI_THREAD_MULTIPLE, "mpi: the library grants thread level ", level, ", but MPI_THREAD_MULTIPLE (",
        MPI_THREAD_MULTIPLE, ") is needed: a rank computes on one thread and communicates on another");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int world = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &world), "MPI_Comm_size");
  check(!launched || launched->world == world, "mpi: the launcher started ", launched ? launched->world : 0,
        " ranks, but MPI sees ", world, "; use the launcher of the MPI library of this build");
  hosts_.resize(static_cast<size_t>(world));
  gather_hosts();
  share_cores();
  find_peers();
}

MpiSession::~MpiSession() {
  reporter_.reset();
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended) return;
  if (failed()) {
    try {
      last_();
    } catch (const std::exception&) {
      // The abort ends the other ranks.
    }
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (ours_) MPI_Finalize();
}

void MpiSession::set_phase(std::string_view phase) {
  if (reporter_) reporter_->set_phase(phase);
}

void MpiSession::gather_hosts() {
  char name[MPI_MAX_PROCESSOR_NAME] = "";
  int length = 0;
  check_mpi(MPI_Get_processor_name(name, &length), "MPI_Get_processor_name");
  std::vector<char> names(sizeof(name) * hosts_.size());
  check_mpi(MPI_Allgather(name, sizeof(name), MPI_CHAR, names.data(), sizeof(name), MPI_CHAR, MPI_COMM_WORLD),
            "MPI_Allgather");
  for (size_t i = 0; i < hosts_.size(); ++i) hosts_[i] = names.data() + i * sizeof(name);
}

// A launcher may bind each rank to a core or socket. The ranks of a host share the union of their cores equally, or the
// CPU limit of their control group if it is lower.
void MpiSession::share_cores() {
  cpu_set_t own;
  CPU_ZERO(&own);
  sched_getaffinity(0, sizeof(own), &own);
  std::vector<cpu_set_t> all(hosts_.size());
  check_mpi(MPI_Allgather(&own, sizeof(own), MPI_BYTE, all.data(), sizeof(own), MPI_BYTE, MPI_COMM_WORLD),
            "MPI_Allgather");
  cpu_set_t lent;
  CPU_ZERO(&lent);
  int ranks_here = 0;
  for (size_t i = 0; i < hosts_.size(); ++i)
    if (hosts_[i] == hosts_[static_cast<size_t>(rank_)]) {
      CPU_OR(&lent, &lent, &all[i]);
      ++ranks_here;
    }
  if (CPU_COUNT(&lent) == 0) {  // sched_getaffinity() fails on machines with more than 1,024 processors
    threads_per_rank_ = std::max(1, hardware_threads() / ranks_here);
    return;
  }
  threads_per_rank_ = std::clamp(within_cpu_limit(CPU_COUNT(&lent)) / ranks_here, 1, hardware_threads());
  bound_ = CPU_COUNT(&lent) < sysconf(_SC_NPROCESSORS_ONLN);
}

// Processes of one host may be in different containers, whose process numbers differ.
void MpiSession::find_peers() {
  struct Process {
    int64_t number = ::getpid();
    char numbering[48] = "";
  };
  const Process own = [] {
    Process process;
    const ssize_t length = ::readlink("/proc/self/ns/pid", process.numbering, sizeof(process.numbering) - 1);
    if (length < 0) process.numbering[0] = 0;
    return process;
  }();
  std::vector<Process> all(hosts_.size());
  check_mpi(MPI_Allgather(&own, sizeof(own), MPI_BYTE, all.data(), sizeof(own), MPI_BYTE, MPI_COMM_WORLD),
            "MPI_Allgather");
  std::vector<std::pair<int, pid_t>> peers;
  for (int peer = 0; peer < world(); ++peer) {
    const auto i = static_cast<size_t>(peer);
    if (peer == rank_ || hosts_[i] != hosts_[static_cast<size_t>(rank_)]) continue;
    if (peer < rank_) ++rank_on_host_;
    if (*own.numbering && std::strcmp(own.numbering, all[i].numbering) == 0)
      peers.emplace_back(peer, static_cast<pid_t>(all[i].number));
  }
  if (peers.empty() && world() > 1)
    reporter_ =
        std::make_unique<DeathReporter>(detail::concat("rank ", rank_, " on ", hosts_[static_cast<size_t>(rank_)]));
  peers_on_host_ = std::make_unique<PeerProcesses>(peers);
}

}  // namespace godwit
