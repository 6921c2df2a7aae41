#include "comm/local.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "comm/failure.h"
#include "comm/reduce.h"
#include "comm/rendezvous.h"
#include "engine/context.h"
#include "engine/parallel.h"

namespace godwit {
namespace {

// The meeting places of all groups of one run_local(), and the first failure among its ranks.
class World {
 public:
  World(const Topology& topology, std::chrono::milliseconds timeout) : topology_(topology) {
    std::vector<int> everyone;
    for (int rank = 0; rank < topology.world(); ++rank) everyone.push_back(rank);
    world_.emplace(everyone, timeout);
    compute_.emplace(everyone, timeout);
    for (int node = 0; node < topology.nodes; ++node)
      intra_.push_back(
          std::make_unique<Rendezvous>(std::vector<int>(everyone.begin() + node * topology.workers_per_node,
                                                        everyone.begin() + (node + 1) * topology.workers_per_node),
                                       timeout));
    for (int local = 0; local < topology.workers_per_node; ++local) {
      std::vector<int> ranks;
      for (int node = 0; node < topology.nodes; ++node) ranks.push_back(node * topology.workers_per_node + local);
      inter_.push_back(std::make_unique<Rendezvous>(std::move(ranks), timeout));
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

  // After all ranks have ended.
  std::optional<int> first_failed() const { return first_failed_; }
  const std::string& reason() const { return reason_; }

 private:
  Topology topology_;
  std::optional<Rendezvous> world_, compute_;
  std::vector<std::unique_ptr<Rendezvous>> intra_, inter_;
  std::mutex mutex_;
  std::optional<int> first_failed_;
  std::string reason_;
};

// All members are in the same call while one of these lives, and read (and write) the memory they published.
class Meeting {
 public:
  Meeting(Rendezvous& place, int member, const Call& call) : place_(place) { place_.enter(member, call); }
  ~Meeting() { place_.leave(); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

 private:
  Rendezvous& place_;
};

class LocalGroup : public Group {
 public:
  LocalGroup(int rank, std::vector<Link> links, std::shared_ptr<CommStats> stats, Rendezvous& place,
             std::shared_ptr<World> world, int world_rank)
      : Group(rank, std::move(links), std::move(stats)),
        place_(place),
        world_(std::move(world)),
        world_rank_(world_rank) {}

  void abort(const std::string& reason) override { world_->fail(world_rank_, reason); }

 protected:
  // Every rank reduces one part and writes it to all: nobody else touches that part.
  void do_all_reduce(const Tensor& x, Reduce op, std::string_view phase) override {
    Meeting meeting(place_, rank(), {Collective::all_reduce, phase, x.dtype(), op, 0, x.bytes(), nullptr, x.raw()});
    const int64_t begin = part_begin(x.numel(), size(), rank()), end = part_begin(x.numel(), size(), rank() + 1);
    dispatch_real(x.dtype(), "all_reduce", [&]<class T>() {
      std::vector<const T*> in;
      std::vector<T*> out;
      for (int peer = 0; peer < size(); ++peer) {
        out.push_back(static_cast<T*>(place_.call(peer).out) + begin);
        in.push_back(out.back());
      }
      if (size() > 1) reduce_in_order(in, out, end - begin, op);
    });
  }

  void do_reduce_scatter(const Tensor& in, const Tensor& out, Reduce op, std::string_view phase) override {
    Meeting meeting(place_, rank(),
                    {Collective::reduce_scatter, phase, in.dtype(), op, 0, in.bytes(), in.raw(), nullptr});
    dispatch_real(in.dtype(), "reduce_scatter", [&]<class T>() {
      std::vector<const T*> parts;
      for (int peer = 0; peer < size(); ++peer)
        parts.push_back(static_cast<const T*>(place_.call(peer).in) + rank() * out.numel());
      reduce_in_order(parts, {out.data<T>()}, out.numel(), op);
    });
  }

  void do_all_gather(const Tensor& in, const Tensor& out, std::string_view phase) override {
    Meeting meeting(place_, rank(),
                    {Collective::all_gather, phase, in.dtype(), Reduce::sum, 0, in.bytes(), in.raw(), nullptr});
    for (int peer = 0; peer < size(); ++peer) copy(place_.call(peer).in, 0, out, peer * in.bytes(), in.bytes());
  }

  void do_all_to_all(const Tensor& in, const Tensor& out, std::string_view phase) override {
    Meeting meeting(place_, rank(),
                    {Collective::all_to_all, phase, in.dtype(), Reduce::sum, 0, in.bytes(), in.raw(), nullptr});
    const int64_t part = in.bytes() / size();
    for (int peer = 0; peer < size(); ++peer) copy(place_.call(peer).in, rank() * part, out, peer * part, part);
  }

  void do_broadcast(const Tensor& x, int root, std::string_view phase) override {
    Meeting meeting(place_, rank(),
                    {Collective::broadcast, phase, x.dtype(), Reduce::sum, root, x.bytes(), x.raw(), nullptr});
    if (rank() != root) copy(place_.call(root).in, 0, x, 0, x.bytes());
  }

  // There is no memory to be done with, so nobody waits a second time.
  void do_barrier(std::string_view phase) override { place_.enter(rank(), {Collective::barrier, phase}); }

 private:
  static void copy(const void* from, int64_t from_offset, const Tensor& to, int64_t to_offset, int64_t bytes) {
    const auto* source = static_cast<const std::byte*>(from) + from_offset;
    auto* target = static_cast<std::byte*>(to.raw()) + to_offset;
    parallel_for(bytes, 1 << 20, [=](int64_t begin, int64_t end) {
      std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
    });
  }

  Rendezvous& place_;
  std::shared_ptr<World> world_;  // owns place_
  int world_rank_;
};

Communicator make_communicator(const std::shared_ptr<World>& world, int rank) {
  const Topology& topology = world->topology();
  Communicator comm{topology, rank, nullptr, nullptr, nullptr, nullptr, std::make_shared<CommStats>()};
  std::vector<Link> links;
  for (int peer = 0; peer < topology.world(); ++peer) links.push_back(topology.link(rank, peer));
  comm.world = std::make_shared<LocalGroup>(rank, links, comm.stats, world->world(), world, rank);
  comm.compute = std::make_shared<LocalGroup>(rank, links, comm.stats, world->compute(), world, rank);
  comm.intra = std::make_shared<LocalGroup>(
      comm.local_rank(), std::vector<Link>(static_cast<size_t>(topology.workers_per_node), Link::intra), comm.stats,
      world->intra(rank), world, rank);
  comm.inter =
      std::make_shared<LocalGroup>(comm.node(), std::vector<Link>(static_cast<size_t>(topology.nodes), Link::inter),
                                   comm.stats, world->inter(rank), world, rank);
  return comm;
}

void run_rank(const std::shared_ptr<World>& world, int rank, int threads,
              const std::function<void(Communicator&)>& body, std::exception_ptr& error) {
  try {
    ContextGuard guard(Context{rank, threads, true, std::make_shared<Pool>()});
    Communicator comm = make_communicator(world, rank);
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
  check(options.threads_per_rank >= 0, "run_local: ", options.threads_per_rank, " threads per rank");
  check(options.timeout.count() > 0, "run_local: the timeout is ", options.timeout.count(), " ms; it must be positive");
  const int size = topology.world();
  const int threads = options.threads_per_rank ? options.threads_per_rank : std::max(1, hardware_threads() / size);
  auto world = std::make_shared<World>(topology, options.timeout);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> ranks;
  bool started = true;
  try {
    for (int rank = 0; rank < size; ++rank)
      ranks.emplace_back([&, rank] { run_rank(world, rank, threads, body, errors[static_cast<size_t>(rank)]); });
  } catch (...) {
    started = false;
    world->fail(static_cast<int>(ranks.size()), "the system gave it no thread");
  }
  for (std::thread& rank : ranks) rank.join();
  check(started, "the system allows only ", ranks.size(), " of ", size,
        " worker threads; lower --nodes or --workers-per-node, or raise the limit (ulimit -u)");
  const std::optional<int> failed = world->first_failed();
  if (!failed) return;
  const std::exception_ptr error = errors[static_cast<size_t>(*failed)];
  if (!error) fail(size > 1 ? detail::concat("rank ", *failed, ": ") : std::string(), world->reason());
  if (size == 1) std::rethrow_exception(error);
  rethrow_from(*failed, error);
}

}  // namespace godwit
