// Group: ranks that communicate, and the collectives between them; the transports (local, mpi, nccl) implement it.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/stats.h"
#include "comm/topology.h"
#include "engine/tensor.h"

namespace godwit {

enum class Reduce { sum, mean };  // mean: the sum divided by the number of ranks

// Where part i of n elements begins when they are dealt out evenly: the first n mod parts parts have one more.
constexpr int64_t part_begin(int64_t n, int parts, int i) { return n / parts * i + (i < n % parts ? i : n % parts); }

// Every rank of the group makes the same calls in the same order, with equal sizes and the same phase. On the CPU a
// call blocks until the result is there (run it on a Stream to overlap it). On a GPU, work that the thread queues on its
// stream afterwards finds the result. A peer that failed, or that does not come before the timeout, makes the call, a
// later call, or a wait of the host for the stream throw an Error naming rank and phase. Sums run in rank order, but for
// NCCL's, then divide: the same bits on all ranks.
class Group {
 public:
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }                            // of the calling rank in this group
  int size() const { return static_cast<int>(links_.size()); }  // number of ranks
  const std::vector<Link>& links() const { return links_; }     // [j]: how peer j is reached; the own is not used

  // Reductions take float32 and float64, the others any type; in and out must not overlap.
  void all_reduce(const Tensor& x, Reduce op, std::string_view phase);                          // in place
  void reduce_scatter(const Tensor& in, const Tensor& out, Reduce op, std::string_view phase);  // [size·k] -> [k]
  void all_gather(const Tensor& in, const Tensor& out, std::string_view phase);                 // [k] -> [size·k]
  void all_to_all(const Tensor& in, const Tensor& out, std::string_view phase);  // part j of in goes to rank j's part
  void broadcast(const Tensor& x, int root, std::string_view phase);  // x of the root to all ranks
  void barrier(std::string_view phase);  // returns when all ranks have called it
  virtual void abort(const std::string& reason) = 0;  // peers throw instead of waiting for this rank
  virtual void check_failure(std::string_view phase) = 0;  // throws where a rank has failed
  // While the returned object lives, no rank's wait for this one times out: for work that one rank does alone and that
  // may take long, such as writing files. A process that is stopped or dead is still noticed.
  virtual std::shared_ptr<void> busy() = 0;
  virtual std::chrono::steady_clock::time_point last_busy() = 0;  // the latest known moment in which a rank was busy
  // Every rank of the run calls it before each step, equally often. After a rank has passed `stop`, it returns false on
  // all ranks at the same call, which is the earliest that no rank has passed yet. It exchanges nothing until then.
  virtual bool may_continue(bool stop) = 0;
  // Collective, after may_continue() has returned false: the ranks take steps again.
  void continue_steps();
  virtual void forget_stop() = 0;                     // for continue_steps(); no rank is within may_continue()
  // Spent in these calls, including waiting for peers. With NCCL, of the calls that the GPU has finished.
  double seconds() const { return seconds_; }
  int64_t calls() const { return calls_; }            // number of these calls
  // Its calls run kernels that wait on the GPU for those of other ranks. Then a rank must not use two groups at a time,
  // nor load kernels while such a kernel runs: either may wait for a kernel that waits for another rank.
  virtual bool kernels_wait() const { return false; }

 protected:
  // links[j]: how peer j is reached, one entry per rank. Bytes are added to `stats`.
  Group(int rank, std::vector<Link> links, std::shared_ptr<CommStats> stats);

  // What a transport provides; arguments were checked, bytes counted. in and out never overlap.
  virtual void do_all_reduce(const Tensor& x, Reduce op, std::string_view phase) = 0;
  virtual void do_reduce_scatter(const Tensor& in, const Tensor& out, Reduce op, std::string_view phase) = 0;
  virtual void do_all_gather(const Tensor& in, const Tensor& out, std::string_view phase) = 0;
  virtual void do_all_to_all(const Tensor& in, const Tensor& out, std::string_view phase) = 0;
  virtual void do_broadcast(const Tensor& x, int root, std::string_view phase) = 0;
  virtual void do_barrier(std::string_view phase) = 0;
  // For a transport that measures a call's time on the GPU: called within the call. It then calls add_time() later.
  void time_follows() { time_follows_ = true; }
  void add_time(std::string_view phase, double seconds);  // thread-safe

 private:
  struct Observed;
  template <class F, class G>
  void run(std::string_view phase, F bytes_to_peer, G call);  // counts and times it

  int rank_;
  std::vector<Link> links_;
  std::shared_ptr<CommStats> stats_;
  std::atomic<double> seconds_ = 0;
  int64_t calls_ = 0;
  bool time_follows_ = false;  // of the present call
};

// During its lifetime, calls f(true) when a collective of the calling thread begins, and f(false) when it ends.
class CallObserver {
 public:
  explicit CallObserver(std::function<void(bool begins)> f);  // replaces the thread's observer
  ~CallObserver();                                            // restores it
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;

 private:
  friend class Group;
  std::function<void(bool)> f_;
  CallObserver* before_;
};

// What one rank communicates with: everyone, its node, and the ranks of its local rank on the other nodes. `compute` is
// everyone once more, for calls of the computing thread while the communication thread uses the other groups; the
// Scheduler keeps the two apart where kernels_wait().
struct Communicator {
  Topology topology;                                    // nodes and workers per node
  int rank = 0;                                         // in `world`
  std::shared_ptr<Group> world, intra, inter, compute;  // see above
  std::shared_ptr<CommStats> stats;                     // bytes and calls of this rank

  // Of world, intra and inter.
  double seconds() const { return world->seconds() + intra->seconds() + inter->seconds(); }
  int node() const { return topology.node_of(rank); }           // of this rank
  int local_rank() const { return topology.local_rank(rank); }  // number of this rank within its node
};

}  // namespace godwit
