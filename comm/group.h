// Group: ranks that communicate, and their collectives. The transports (local, mpi, nccl) implement this class.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "comm/run_control.h"
#include "comm/stats.h"
#include "comm/topology.h"
#include "engine/tensor.h"

namespace godwit {

enum class Reduce { sum, mean };  // mean: the sum divided by the number of ranks

// First element of part i if n elements are divided evenly. The first n mod `parts` parts have one more element.
constexpr int64_t part_begin(int64_t n, int parts, int i) { return n / parts * i + (i < n % parts ? i : n % parts); }

// Every rank of the group must make the same calls in the same order, with equal sizes and the same phase. On the CPU,
// a call returns after the result is available; to overlap the call with other work, run it on a Stream. On a GPU, the
// result is visible to work that the thread queues on its stream afterwards. If a peer fails or does not call before
// the timeout, an Error names the rank and the phase. The call, a later call, or a wait of the host for the stream
// throws this Error. Reductions add in rank order, except with NCCL. Results are bit-identical on all ranks.
class Group {
 public:
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }                            // index of this rank in the group
  int size() const { return static_cast<int>(links_.size()); }  // number of ranks
  const std::vector<Link>& links() const { return links_; }     // [j]: level of the link to peer j; unused at rank()

  // Reductions support float32 and float64, the other collectives any type. `in` and `out` must not overlap.
  void all_reduce(const Tensor& x, Reduce op, std::string_view phase);                          // works in place
  void reduce_scatter(const Tensor& in, const Tensor& out, Reduce op, std::string_view phase);  // [size·k] -> [k]
  void all_gather(const Tensor& in, const Tensor& out, std::string_view phase);                 // [k] -> [size·k]
  void all_to_all(const Tensor& in, const Tensor& out, std::string_view phase);  // sends part j of in to rank j
  void broadcast(const Tensor& x, int root, std::string_view phase);  // copies x of the root to all ranks
  void barrier(std::string_view phase);  // returns when all ranks have called barrier()
  virtual void check_failure(std::string_view phase) = 0;  // throws an Error if a rank has failed
  const std::shared_ptr<RunControl>& control() const { return control_; }  // failures, busy ranks and stops of the run
  // Seconds in collectives except barriers, including waits for peers. With NCCL, only finished collectives count.
  double seconds() const { return seconds_; }
  int64_t calls() const { return calls_; }            // number of collectives, excluding barriers
  // True if collectives are GPU kernels that wait for the kernels of other ranks (NCCL). A rank that
  // then uses two groups at a time, or loads kernels while a collective runs, can deadlock.
  virtual bool collectives_are_kernels() const { return false; }

 protected:
  // links[j] is the level of the link to peer j, with one entry per rank. Sent bytes are added to `stats`.
  Group(int rank, std::vector<Link> links, std::shared_ptr<CommStats> stats, std::shared_ptr<RunControl> control);

  // Implemented by the transports. Arguments have been checked and bytes counted. `in` and `out` never overlap.
  virtual void do_all_reduce(const Tensor& x, Reduce op, std::string_view phase) = 0;
  virtual void do_reduce_scatter(const Tensor& in, const Tensor& out, Reduce op, std::string_view phase) = 0;
  virtual void do_all_gather(const Tensor& in, const Tensor& out, std::string_view phase) = 0;
  virtual void do_all_to_all(const Tensor& in, const Tensor& out, std::string_view phase) = 0;
  virtual void do_broadcast(const Tensor& x, int root, std::string_view phase) = 0;
  virtual void do_barrier(std::string_view phase) = 0;
  // For transports that measure the time of a collective on the GPU and call add_time() later. Called within a
  // collective.
  void time_follows() { time_follows_ = true; }
  void add_time(std::string_view phase, double seconds);  // thread-safe

 private:
  struct Observed;
  template <class F, class G>
  void run(std::string_view phase, F bytes_to_peer, G call);  // counts and times the call

  int rank_;
  std::vector<Link> links_;
  std::shared_ptr<CommStats> stats_;
  std::shared_ptr<RunControl> control_;
  std::atomic<double> seconds_ = 0;
  int64_t calls_ = 0;
  bool time_follows_ = false;  // whether time_follows() was called in the current call
};

// Collective. After RunControl::may_continue() has returned false, allows the ranks of a run to take steps again.
// `world`: all ranks of the run.
void continue_steps(Group& world);

// During the lifetime of this object, f(true) is called when a collective of the calling thread begins, and f(false)
// when it ends.
class CallObserver {
 public:
  explicit CallObserver(std::function<void(bool begins)> f);  // replaces the thread's observer
  ~CallObserver();                                            // restores the previous observer
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;

 private:
  friend class Group;
  std::function<void(bool)> f_;
  CallObserver* before_;
};

// The groups of one rank:
// - world and compute: all ranks;
// - intra: the ranks of its node;
// - inter: one rank of each node, the ranks that have the same local rank.
//
// The computing thread uses compute, and the communication thread uses the other groups. If collectives_are_kernels(),
// the Scheduler lets only one of these threads communicate at a time.
struct Communicator {
  Topology topology;                                    // nodes and workers per node
  int rank = 0;                                         // rank in `world`
  std::shared_ptr<Group> world, intra, inter, compute;  // see above
  std::shared_ptr<CommStats> stats;                     // bytes and calls of this rank
  // The ranks that together have all parameters, if a rank has only a shard (sharding hybrid). Otherwise null.
  std::shared_ptr<Group> shards = nullptr;

  // Seconds in collectives of world, intra and inter.
  double seconds() const { return world->seconds() + intra->seconds() + inter->seconds(); }
  int node() const { return topology.node_of(rank); }           // node of this rank
  int local_rank() const { return topology.local_rank(rank); }  // index of this rank within its node
};

}  // namespace godwit
