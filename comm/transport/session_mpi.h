// MpiSession: initializes and finalizes MPI in this process. Internal to the MPI transport, like all *_mpi.h.
#pragma once
#include <mpi.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/topology.h"
#include "comm/transport/death_reporter.h"
#include "comm/transport/peer_processes.h"

namespace godwit {

void check_mpi(int result, const char* operation);  // throws an Error with MPI's text unless `result` is MPI_SUCCESS

// There is one session per process, with MPI_THREAD_MULTIPLE. At process exit, it finalizes MPI, or aborts all ranks
// after a failure. If the embedding program initialized MPI, that program must finalize it.
class MpiSession {
 public:
  static MpiSession& instance();  // initializes MPI on the first call; throws on failure
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int world() const { return static_cast<int>(hosts_.size()); }
  const std::vector<std::string>& hosts() const { return hosts_; }  // host name of each rank
  int threads_per_rank() const { return threads_per_rank_; }        // cores per rank of this host
  bool bound() const { return bound_; }  // whether this host's ranks may use only some of its cores

  int rank_on_host() const { return rank_on_host_; }          // index among the ranks of this host
  PeerProcesses& peers_on_host() { return *peers_on_host_; }  // not thread-safe
  void set_phase(std::string_view phase);                     // phase of this rank, for the line of a DeathReporter

  // Makes the exit of this process call `last` and then abort all ranks. `last` owns the memory that MPI may still use.
  void fail(std::function<void()> last) { last_ = std::move(last); }
  bool failed() const { return last_ != nullptr; }

 private:
  MpiSession();
  void gather_hosts();
  void share_cores();
  void find_peers();

  bool ours_ = false;
  int rank_ = 0, rank_on_host_ = 0, threads_per_rank_ = 1;
  bool bound_ = false;
  std::vector<std::string> hosts_;
  std::function<void()> last_;  // of fail()
  std::unique_ptr<PeerProcesses> peers_on_host_;
  std::unique_ptr<DeathReporter> reporter_;  // reporter of a rank without peers on its host
};

}  // namespace godwit
