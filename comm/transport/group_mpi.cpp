#include "comm/transport/group_mpi.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/failure.h"
#include "comm/transport/pinned_copy.h"
#include "comm/transport/peer_memory.h"
#include "comm/reduce.h"

namespace godwit {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{1}, kLongestBeat{500};  // between looks for notices; between signs of life
constexpr int kScatter = 1, kGather = 2;  // tags of the two halves of an all-reduce

std::byte* at(const Tensor& x, int64_t offset) { return static_cast<std::byte*>(x.raw()) + offset; }

// Where the parts that the peers send lie in one block of memory, in rank order without the own.
int64_t slot(int peer, int rank) { return peer < rank ? peer : peer - 1; }

// Tells the other ranks from a thread of its own that this one is busy, as long as it lives.
class Heartbeat {
 public:
  Heartbeat(std::shared_ptr<MpiWorld> world, Clock::duration pause)
      : world_(std::move(world)), thread_([this, pause] { beat(pause); }) {}
  ~Heartbeat() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  void beat(Clock::duration pause) {
    std::unique_lock lock(mutex_);
    try {
      while (!changed_.wait_for(lock, pause, [&] { return ended_; })) {
        world_->control.busy();
        world_->control.poll();  // keeps MPI going meanwhile
      }
    } catch (const std::exception&) {
      // An error of MPI, which this rank's next collective meets too.
    }
  }

  std::shared_ptr<MpiWorld> world_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace

MpiGroup::MpiGroup(MpiMembers members, std::vector<Link> links, std::shared_ptr<CommStats> stats)
    : Group(members.rank, std::move(links), std::move(stats)), members_(std::move(members)) {}

void MpiGroup::abort(const std::string& reason) { members_.world->control.fail(reason); }

void MpiGroup::check_failure(std::string_view phase) {
  ControlChannel& control = members_.world->control;
  control.poll();
  if (const std::optional<int> failed = control.failed_peer())
    fail("rank ", members_.world_ranks[static_cast<size_t>(rank())], ": phase '", phase, "': rank ", *failed,
         " failed: ", control.failures().at(*failed));
}

std::shared_ptr<void> MpiGroup::busy() {
  return std::make_shared<Heartbeat>(members_.world,
                                     std::min<Clock::duration>(members_.world->timeout / 4, kLongestBeat));
}

Clock::time_point MpiGroup::last_busy() { return members_.world->control.last_busy(); }

bool MpiGroup::may_continue(bool stop) {
  MpiWorld& world = *members_.world;
  for (const auto start = Clock::now();; std::this_thread::sleep_for(kLook)) {
    check_failure("stop");
    if (const std::optional<bool> decided = world.control.may_continue(stop)) return *decided;
    check(Clock::now() - std::max(start, last_busy()) <= world.timeout, "rank ",
          members_.world_ranks[static_cast<size_t>(rank())], ": timeout: ", rank_list(world.control.undecided()),
          " did not say at which step to stop within ", static_cast<double>(world.timeout.count()) / 1000, " s");
  }
}

void MpiGroup::forget_stop() { members_.world->control.forget_stop(); }

template <class F>
void MpiGroup::for_each_peer(F&& f) const {
  for (int step = 1; step < size(); ++step) f((rank() + step) % size());
}

// Each rank gets the others' values of its part, sums them, and sends the sum to all.
void MpiGroup::do_all_reduce(const Tensor& values, Reduce op, std::string_view phase) {
  if (size() == 1) return;
  const Tensor x = pinned_copy(values);
  const int64_t item = size_of(x.dtype());
  const auto begin = [&](int peer) { return part_begin(x.numel(), size(), peer) * item; };
  const int64_t own = begin(rank()), part = begin(rank() + 1) - own;
  const Tensor others({(size() - 1) * part / item}, x.dtype(), kCpu);
  Transfer transfer(members_, {Collective::all_reduce, phase, x.dtype(), op, 0, x.bytes()}, {x, others});
  for_each_peer([&](int peer) {
    transfer.receive(peer, at(others, slot(peer, rank()) * part), part, kScatter);
    transfer.send(peer, at(x, begin(peer)), begin(peer + 1) - begin(peer), kScatter);
  });
  transfer.finish();
  dispatch_real(x.dtype(), "all_reduce", [&]<class T>() {
    std::vector<const T*> in;
    for (int peer = 0; peer < size(); ++peer)
      in.push_back(reinterpret_cast<const T*>(peer == rank() ? at(x, own) : at(others, slot(peer, rank()) * part)));
    reduce_in_order(Cpu{}, in, {reinterpret_cast<T*>(at(x, own))}, part / item, op);
  });
  for_each_peer([&](int peer) {
    transfer.receive(peer, at(x, begin(peer)), begin(peer + 1) - begin(peer), kGather);
    transfer.send(peer, at(x, own), part, kGather);
  });
  transfer.finish();
  values.copy_from(x);
}

void MpiGroup::do_reduce_scatter(const Tensor& from, const Tensor& to, Reduce op, std::string_view phase) {
  const Tensor in = pinned_copy(from), out = host_like(to);
  const int64_t part = out.bytes();
  const Tensor others({(size() - 1) * out.numel()}, in.dtype(), kCpu);
  Transfer transfer(members_, {Collective::reduce_scatter, phase, in.dtype(), op, 0, in.bytes()}, {in, others});
  for_each_peer([&](int peer) {
    transfer.receive(peer, at(others, slot(peer, rank()) * part), part, kScatter);
    transfer.send(peer, at(in, peer * part), part, kScatter);
  });
  transfer.finish();
  dispatch_real(in.dtype(), "reduce_scatter", [&]<class T>() {
    std::vector<const T*> parts;
    for (int peer = 0; peer < size(); ++peer)
      parts.push_back(
          reinterpret_cast<const T*>(peer == rank() ? at(in, peer * part) : at(others, slot(peer, rank()) * part)));
    reduce_in_order(Cpu{}, parts, {out.data<T>()}, out.numel(), op);
  });
  to.copy_from(out);
}

void MpiGroup::do_all_gather(const Tensor& from, const Tensor& to, std::string_view phase) {
  const Tensor in = pinned_copy(from), out = host_like(to);
  const int64_t part = in.bytes();
  Transfer transfer(members_, {Collective::all_gather, phase, in.dtype(), Reduce::sum, 0, part}, {in, out});
  for_each_peer([&](int peer) {
    transfer.receive(peer, at(out, peer * part), part, kGather);
    transfer.send(peer, in.raw(), part, kGather);
  });
  copy_bytes(Cpu{}, at(in, 0), at(out, rank() * part), part);
  transfer.finish();
  to.copy_from(out);
}

void MpiGroup::do_all_to_all(const Tensor& from, const Tensor& to, std::string_view phase) {
  const Tensor in = pinned_copy(from), out = host_like(to);
  const int64_t part = in.bytes() / size();
  Transfer transfer(members_, {Collective::all_to_all, phase, in.dtype(), Reduce::sum, 0, in.bytes()}, {in, out});
  for_each_peer([&](int peer) {
    transfer.receive(peer, at(out, peer * part), part, kScatter);
    transfer.send(peer, at(in, peer * part), part, kScatter);
  });
  copy_bytes(Cpu{}, at(in, rank() * part), at(out, rank() * part), part);
  transfer.finish();
  to.copy_from(out);
}

void MpiGroup::do_broadcast(const Tensor& values, int root, std::string_view phase) {
  const Tensor x = rank() == root ? pinned_copy(values) : host_like(values);
  Transfer transfer(members_, {Collective::broadcast, phase, x.dtype(), Reduce::sum, root, x.bytes()}, {x});
  if (rank() == root) for_each_peer([&](int peer) { transfer.send(peer, x.raw(), x.bytes(), kGather); });
  else transfer.receive(root, x.raw(), x.bytes(), kGather);
  transfer.finish();
  if (rank() != root) values.copy_from(x);
}

void MpiGroup::do_barrier(std::string_view phase) { Transfer(members_, {Collective::barrier, phase}, {}).finish(); }

}  // namespace godwit
