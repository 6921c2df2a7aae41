#include "comm/transport/local.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "comm/failure.h"
#include "comm/transport/group_nccl.h"
#include "comm/transport/peer_memory.h"
#include "comm/reduce.h"
#include "comm/transport/rendezvous.h"
#include "engine/context.h"
#include "engine/parallel.h"

namespace godwit {
namespace {

constexpr int kMostRanks = 1 << 20;

// The Rendezvous of all groups of one run_local(), and the first failure of a rank.
class World {
 public:
  World(const Topology& topology, std::chrono::milliseconds timeout) : topology_(topology) {
    std::vector<int> everyone;
    for (int rank = 0; rank < topology.world(); ++rank) everyone.push_back(rank);
    world_.emplace(everyone, timeout, busy_);
    compute_.emplace(everyone, timeout, busy_);
    begun_.resize(everyone.size());
    for (int node = 0; node < topology.nodes; ++node)
      intra_.push_back(
          std::make_unique<Rendezvous>(std::vector<int>(everyone.begin() + node * topology.workers_per_node,
                                                        everyone.begin() + (node + 1) * topology.workers_per_node),
                                       timeout, busy_));
    for (int local = 0; local < topology.workers_per_node; ++local) {
      std::vector<int> ranks;
      for (int node = 0; node < topology.nodes; ++node) ranks.push_back(node * topology.workers_per_node + local);
      inter_.push_back(std::make_unique<Rendezvous>(std::move(ranks), timeout, busy_));
    }
  }

  Rendezvous& world() { return *world_; }
  Rendezvous& compute() { return *compute_; }
  Rendezvous& intra(int rank) { return *intra_[static_cast<size_t>(topology_.node_of(rank))]; }
  Rendezvous& inter(int rank) { return *inter_[static_cast<size_t>(topology_.local_rank(rank))]; }
  const Topology& topology() const { return topology_; }

  void fail(int rank, const std::string& reason) {
    {
      std::lock_guard lock(mutex_);
      if (!first_failed_) first_failed_ = rank, reason_ = reason;
    }
    world_->fail(rank, reason);
    compute_->fail(rank, reason);
    for (auto& group : intra_) group->fail(rank, reason);
    for (auto& group : inter_) group->fail(rank, reason);
  }

  void retire(int rank) {
    world_->retire(rank);
    compute_->retire(rank);
    intra(rank).retire(rank);
    inter(rank).retire(rank);
  }

  BusyRanks& busy() { return busy_; }

  // The first rank that wants to stop sets the last step to the latest step that any rank has begun.
  bool may_continue(int rank, bool stop) {
    const std::lock_guard lock(mutex_);
    int64_t& begun = begun_[static_cast<size_t>(rank)];
    if (stop && !last_step_) last_step_ = *std::max_element(begun_.begin(), begun_.end());
    if (last_step_ && begun >= *last_step_) return false;
    ++begun;
    return true;
  }

  bool stop_requested(bool stop) {
    if (stop) stop_requested_ = true;
    return stop_requested_;
  }

  void forget_stop() {
    const std::lock_guard lock(mutex_);
    last_step_.reset();
  }

  // Call only after all ranks have ended.
  std::optional<int> first_failed() const { return first_failed_; }
  const std::string& reason() const { return reason_; }

 private:
  Topology topology_;
  BusyRanks busy_;
  std::optional<Rendezvous> world_, compute_;
  std::vector<std::unique_ptr<Rendezvous>> intra_, inter_;
  std::mutex mutex_;
  std::optional<int> first_failed_;
  std::string reason_;
  std::vector<int64_t> begun_;  // calls of may_continue() that returned true, by rank
  std::optional<int64_t> last_step_;
  std::atomic<bool> stop_requested_ = false;
};

// One rank of the World.
class LocalControl : public RunControl {
 public:
  LocalControl(std::shared_ptr<World> world, int rank) : world_(std::move(world)), rank_(rank) {}
  void abort(const std::string& reason) override { world_->fail(rank_, reason); }
  std::shared_ptr<void> busy() override {
    world_->busy().begin();
    return {nullptr, [world = world_](void*) { world->busy().end(); }};
  }
  std::chrono::steady_clock::time_point last_busy() override { return world_->busy().last(); }
  bool may_continue(bool stop) override { return world_->may_continue(rank_, stop); }
  void forget_stop() override { world_->forget_stop(); }
  bool stop_requested(bool stop) override { return world_->stop_requested(stop); }

 private:
  std::shared_ptr<World> world_;
  int rank_;
};

class LocalGroup : public Group {
 public:
  LocalGroup(int rank, std::vector<Link> links, std::shared_ptr<CommStats> stats, Rendezvous& rendezvous,
             std::shared_ptr<LocalControl> control)
      : Group(rank, std::move(links), std::move(stats), std::move(control)), rendezvous_(rendezvous) {}

  void check_failure(std::string_view phase) override { rendezvous_.check_failure(rank(), phase); }

 protected:
  // Every rank reduces one part and writes it to all ranks; no other rank accesses that part.
  void do_all_reduce(const Tensor& x, Reduce op, std::string_view phase) override {
    meet(x, {Collective::all_reduce, phase, x.dtype(), op, 0, x.bytes(), nullptr, x.address()}, [&](auto device) {
      const int64_t begin = part_begin(x.numel(), size(), rank()), end = part_begin(x.numel(), size(), rank() + 1);
      dispatch_real(x.dtype(), "all_reduce", [&]<class T>() {
        std::vector<const T*> in;
        std::vector<T*> out;
        for (int peer = 0; peer < size(); ++peer) {
          out.push_back(static_cast<T*>(rendezvous_.call(peer).out) + begin);
          in.push_back(out.back());
        }
        if (size() > 1) reduce_in_order(device, in, out, end - begin, op);
      });
    });
  }

  void do_reduce_scatter(const Tensor& in, const Tensor& out, Reduce op, std::string_view phase) override {
    meet(in, {Collective::reduce_scatter, phase, in.dtype(), op, 0, in.bytes(), in.address()}, [&](auto device) {
      dispatch_real(in.dtype(), "reduce_scatter", [&]<class T>() {
        std::vector<const T*> parts;
        for (int peer = 0; peer < size(); ++peer)
          parts.push_back(static_cast<const T*>(rendezvous_.call(peer).in) + rank() * out.numel());
        reduce_in_order(device, parts, {static_cast<T*>(out.address())}, out.numel(), op);
      });
    });
  }

  void do_all_gather(const Tensor& in, const Tensor& out, std::string_view phase) override {
    meet(in, {Collective::all_gather, phase, in.dtype(), Reduce::sum, 0, in.bytes(), in.address()}, [&](auto device) {
      for (int peer = 0; peer < size(); ++peer) copy(device, peer, 0, out, peer * in.bytes(), in.bytes());
    });
  }

  void do_all_to_all(const Tensor& in, const Tensor& out, std::string_view phase) override {
    meet(in, {Collective::all_to_all, phase, in.dtype(), Reduce::sum, 0, in.bytes(), in.address()}, [&](auto device) {
      const int64_t part = in.bytes() / size();
      for (int peer = 0; peer < size(); ++peer) copy(device, peer, rank() * part, out, peer * part, part);
    });
  }

  void do_broadcast(const Tensor& x, int root, std::string_view phase) override {
    meet(x, {Collective::broadcast, phase, x.dtype(), Reduce::sum, root, x.bytes(), x.address()}, [&](auto device) {
      if (rank() != root) copy(device, root, 0, x, 0, x.bytes());
    });
  }

  // A barrier reads no memory of peers, so leave() is not needed.
  void do_barrier(std::string_view phase) override { rendezvous_.enter(rank(), {Collective::barrier, phase}); }

 private:
  // Calls work(device) while all members are in the same call and may access the memory in their CollectiveCalls. On a
  // GPU, events order the members' streams accordingly.
  template <class F>
  void meet(const Tensor& x, CollectiveCall call, F&& work) {
    const bool on_gpu = x.device().is_cuda();
    call.device = x.device();
    if (on_gpu) call.ready = Event::record();
    rendezvous_.enter(rank(), call);
    std::exception_ptr error;
    Event done;
    try {
      on_device(x, [&](auto device) {
        for (int peer = 0; peer < size(); ++peer) {
          if (peer == rank()) continue;
          enable_peer_access(device, rendezvous_.call(peer).device);
          rendezvous_.call(peer).ready.wait();
        }
        work(device);
      });
      if (on_gpu) done = Event::record();
    } catch (...) {
      error = std::current_exception();
    }
    rendezvous_.leave(rank(), std::move(done));
    if (error) std::rethrow_exception(error);
    for (int peer = 0; on_gpu && peer < size(); ++peer)
      if (peer != rank()) rendezvous_.done(peer).wait();
  }

  // Copies from the input of the peer's call to memory of this rank.
  template <class D>
  void copy(D device, int peer, int64_t from, const Tensor& to, int64_t to_offset, int64_t bytes) {
    copy_bytes(device, static_cast<const std::byte*>(rendezvous_.call(peer).in) + from,
               static_cast<std::byte*>(to.address()) + to_offset, bytes);
  }

  Rendezvous& rendezvous_;  // owned by the World of control()
};

Communicator make_communicator(const std::shared_ptr<World>& world, int rank) {
  const Topology& topology = world->topology();
  Communicator comm{topology, rank, nullptr, nullptr, nullptr, nullptr, std::make_shared<CommStats>()};
  const auto control = std::make_shared<LocalControl>(world, rank);
  const auto group = [&](int own, std::vector<Link> links, Rendezvous& rendezvous) {
    return std::make_shared<LocalGroup>(own, std::move(links), comm.stats, rendezvous, control);
  };
  const auto links = [](int ranks, Link link) { return std::vector<Link>(static_cast<size_t>(ranks), link); };
  std::vector<Link> all;
  for (int peer = 0; peer < topology.world(); ++peer) all.push_back(topology.link(rank, peer));
  comm.world = group(rank, all, world->world());
  comm.compute = group(rank, all, world->compute());
  comm.intra = group(comm.local_rank(), links(topology.workers_per_node, Link::intra), world->intra(rank));
  comm.inter = group(comm.node(), links(topology.nodes, Link::inter), world->inter(rank));
  return comm;
}

void run_rank(const std::shared_ptr<World>& world, int rank, int threads, const LocalOptions& options,
              const std::function<void(Communicator&)>& body, std::exception_ptr& error) {
  try {
    const int size = world->topology().world();
    const ContextGuard guard(Context{rank, threads, true, std::make_shared<Pool>()});
    const ContextGuard placed(context_on(device_of(options.placement, rank, size)));
    Communicator comm = make_communicator(world, rank);
    if (size > 1 && threads_exchange_by_nccl(options.placement, size)) comm = with_nccl(comm, options.timeout);
    body(comm);
    world->retire(rank);
  } catch (...) {
    error = std::current_exception();
    world->fail(rank, text_of(error));
  }
}

}  // namespace

void run_local(const Topology& topology, const std::function<void(Communicator&)>& body, const LocalOptions& options) {
  check(topology.nodes >= 1 && topology.workers_per_node >= 1, "run_local: ", topology.nodes, " nodes of ",
        topology.workers_per_node, " workers; both must be at least 1");
  check(topology.workers_per_node <= kMostRanks / topology.nodes, "run_local: ", topology.nodes, " nodes of ",
        topology.workers_per_node, " workers; expected at most ", kMostRanks, " workers in total");
  check(options.threads_per_rank >= 0, "run_local: threads_per_rank is ", options.threads_per_rank,
        "; expected a number of threads, or 0");
  check(options.timeout.count() > 0 && options.timeout <= std::chrono::years(10), "run_local: the timeout is ",
        options.timeout.count(), " ms; expected 1 ms to 10 years");
  const int size = topology.world();
  device_of(options.placement, 0, size);  // throws here once, and not in every rank
  const int threads = options.threads_per_rank ? options.threads_per_rank : std::max(1, hardware_threads() / size);
  auto world = std::make_shared<World>(topology, options.timeout);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> ranks;
  bool started = true;
  try {
    for (int rank = 0; rank < size; ++rank)
      ranks.emplace_back(
          [&, rank] { run_rank(world, rank, threads, options, body, errors[static_cast<size_t>(rank)]); });
  } catch (...) {
    started = false;
    world->fail(static_cast<int>(ranks.size()), "its thread could not be started");
  }
  for (std::thread& rank : ranks) rank.join();
  check(started, "the system allows only ", ranks.size(), " of ", size,
        " worker threads; lower --nodes or --workers-per-node, or raise the limits of processes and memory (ulimit -u, "
        "ulimit -v)");
  const std::optional<int> failed = world->first_failed();
  if (!failed) return;
  const std::exception_ptr error = errors[static_cast<size_t>(*failed)];
  if (!error) fail(size > 1 ? detail::concat("rank ", *failed, ": ") : std::string(), world->reason());
  if (size == 1) std::rethrow_exception(error);
  rethrow_from(*failed, error);
}

}  // namespace godwit
