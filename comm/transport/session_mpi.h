// MpiSession: MPI in this process, from its start to its end. Internal to the MPI transport, as are all *_mpi.h.
#pragma once
#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/topology.h"

namespace godwit {

void check_mpi(int result, const char* operation);  // throws an Error with MPI's text

// Started once, with MPI_THREAD_MULTIPLE. At the end of the process it finalizes MPI, or aborts all ranks after a
// failure. Where the embedding program has started MPI itself, it also ends it.
class MpiSession {
 public:
  static MpiSession& instance();  // starts MPI when it is not; throws
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int world() const { return static_cast<int>(hosts_.size()); }
  const std::vector<std::string>& hosts() const { return hosts_; }  // of each rank
  const std::string& library() const { return library_; }           // "Open MPI v4.1.4"
  int threads_per_rank() const { return threads_per_rank_; }        // cores lent to this host's ranks / their number
  bool bound() const { return bound_; }                             // the ranks of this host may not use all its cores

  // All processes are to end; `world`, whose memory MPI may still use, is kept until then.
  void fail(std::shared_ptr<void> world);
  bool failed() const { return failed_ != nullptr; }

 private:
  MpiSession();
  void gather_hosts();
  void share_cores();

  bool ours_ = false;
  int rank_ = 0, threads_per_rank_ = 1;
  bool bound_ = false;
  std::vector<std::string> hosts_;
  std::string library_;
  std::shared_ptr<void> failed_;
};

}  // namespace godwit
