#include "comm/transport/group_mpi.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "comm/failure.h"
#include "comm/host_tensor.h"
#include "comm/reduce.h"
#include "comm/transport/peer_memory.h"
#include "engine/host_memory.h"

namespace godwit {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPoll{1}, kLongestBeat{500};  // between polls for notices; between busy notices
constexpr int kScatter = 1, kGather = 2;  // message tags: of summands, and of results
// Measured on emulated hosts. A ring all-gather is faster from this size of a part, a chain from this number of ranks
// and of pieces per rank.
constexpr int64_t kRingPart = 32 << 10, kChainRanks = 16, kChainPieces = 12;

std::byte* at(const Tensor& x, int64_t offset) { return static_cast<std::byte*>(x.raw()) + offset; }

// Index of the part of `peer` in memory for the parts of all other ranks, in rank order.
int64_t slot(int peer, int rank) { return peer < rank ? peer : peer - 1; }

// A thread that, while the object exists, sends busy notices to the other ranks.
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
        world_->control.poll();  // lets MPI make progress
      }
    } catch (const std::exception&) {
      // The next collective of this rank reports the error of MPI.
    }
  }

  std::shared_ptr<MpiWorld> world_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::thread thread_;  // last member: the thread uses the others
};

class MpiRunControl : public RunControl {
 public:
  MpiRunControl(std::shared_ptr<MpiWorld> world, int rank) : world_(std::move(world)), rank_(rank) {}

  void abort(const std::string& reason) override { world_->control.fail(reason); }

  std::shared_ptr<void> busy() override {
    try {
      return std::make_shared<Heartbeat>(world_, std::min<Clock::duration>(world_->timeout / 4, kLongestBeat));
    } catch (const std::system_error&) {  // the system allows no further thread; the other ranks get one notice
      world_->control.busy();
      return nullptr;
    }
  }

  Clock::time_point last_busy() override { return world_->control.last_busy(); }

  bool may_continue(bool stop) override {
    for (const auto start = Clock::now();; std::this_thread::sleep_for(kPoll)) {
      world_->check_peers(rank_, "stop");
      if (const std::optional<bool> decided = world_->control.may_continue(stop)) return *decided;
      check(Clock::now() - std::max(start, last_busy()) <= world_->timeout, "rank ", rank_, ": timeout: ",
            rank_list(world_->control.undecided()), " did not answer a request to stop within ",
            static_cast<double>(world_->timeout.count()) / 1000, " s");
    }
  }

  void forget_stop() override { world_->control.forget_stop(); }

  bool stop_requested(bool stop) override {
    world_->check_peers(rank_, "stop");
    return world_->control.stop_requested(stop);
  }

 private:
  std::shared_ptr<MpiWorld> world_;
  int rank_;
};

}  // namespace

std::shared_ptr<RunControl> mpi_run_control(std::shared_ptr<MpiWorld> world, int rank) {
  return std::make_shared<MpiRunControl>(std::move(world), rank);
}

// A tensor as one part for each rank, cut into pieces of `piece` bytes.
class MpiGroup::Parts {
 public:
  Parts(const Tensor& x, int ranks, int64_t piece) : x_(x), ranks_(ranks), piece_(piece) {}
  int64_t rows() const { return (bytes(0) + piece_ - 1) / piece_; }  // pieces of the longest part
  int64_t longest_piece() const { return std::min(bytes(0), piece_); }
  // A piece beyond the end of a part has no bytes.
  Piece operator()(int rank, int64_t row) const {
    const int64_t offset = row * piece_;
    return {at(x_, begin(rank) + offset), std::clamp<int64_t>(bytes(rank) - offset, 0, piece_)};
  }

 private:
  int64_t begin(int rank) const { return part_begin(x_.numel(), ranks_, rank) * size_of(x_.dtype()); }
  int64_t bytes(int rank) const { return begin(rank + 1) - begin(rank); }

  const Tensor& x_;
  int ranks_;
  int64_t piece_;
};

MpiGroup::MpiGroup(MpiMembers members, std::vector<Link> links, std::shared_ptr<CommStats> stats,
                   std::shared_ptr<RunControl> control)
    : Group(members.rank, links, std::move(stats), std::move(control)),
      members_(std::move(members)),
      between_nodes_(std::ranges::count(links, Link::inter) == size() - 1) {}

void MpiGroup::check_failure(std::string_view phase) {
  members_.world->check_peers(members_.world_ranks[static_cast<size_t>(rank())], phase);
}

// Reduce-scatter: sends each rank its part of `in`, and writes the sum over all ranks of this rank's part, in rank
// order, to `out`. The next rows arrive while a row is summed. Calls summed(row) when a row is summed and its messages
// are sent.
template <class F>
void MpiGroup::reduce_own_part(const CollectiveCall& call, const Tensor& in, std::byte* out, F&& summed) {
  const Parts parts(in, size(), members_.row);
  const int64_t depth = std::min(Transfer::depth(size()), parts.rows()), item = size_of(in.dtype());
  const Tensor others({depth * (size() - 1) * parts.longest_piece() / item}, in.dtype(), kCpu);
  const auto received = [&](int peer, int64_t row) {
    return at(others, (row % depth * (size() - 1) + slot(peer, rank())) * parts.longest_piece());
  };
  Transfer transfer(members_, call, {in, others}, depth);
  for (int64_t row = 0; row < parts.rows() + depth - 1; ++row) {
    if (row < parts.rows())
      transfer.queue(
          kScatter, row, [&](int peer) { return parts(peer, row); },
          [&](int peer) {
            return Piece{received(peer, row), parts(rank(), row).bytes};
          });
    const int64_t ready = row - depth + 1;
    if (ready < 0) continue;
    transfer.wait(kScatter, ready);
    const Piece own = parts(rank(), ready);
    dispatch_real(in.dtype(), "reduce", [&]<class T>() {
      std::vector<const T*> summands;
      for (int peer = 0; peer < size(); ++peer)
        summands.push_back(reinterpret_cast<const T*>(peer == rank() ? own.data : received(peer, ready)));
      reduce_in_order(Cpu{}, summands, {reinterpret_cast<T*>(out + ready * members_.row)}, own.bytes / item,
                      call.reduce);
    });
    summed(transfer, ready);
  }
  transfer.finish();
}

void MpiGroup::queue_gather(Transfer& transfer, const Parts& parts, int64_t row) const {
  transfer.queue(
      kGather, row, [&](int) { return parts(rank(), row); }, [&](int peer) { return parts(peer, row); });
}

void MpiGroup::do_all_reduce(const Tensor& values, Reduce op, std::string_view phase) {
  if (size() == 1) return;
  const Tensor x = pinned_copy(values);
  const CollectiveCall call{Collective::all_reduce, phase, x.dtype(), op, 0, x.bytes()};
  const int64_t bytes = x.bytes() * size();
  const auto begun = Clock::now();
  if (between_nodes_ && size() >= kChainRanks && x.bytes() >= kChainPieces * size() * members_.piece) {
    chain_all_reduce(call, x);
  } else if (rounds_.one_round(bytes) || (size() >= kChainRanks && fits_rounds(x.bytes()))) {
    const Tensor all({size() * x.numel()}, x.dtype(), kCpu);
    gather(call, x, all);
    dispatch_real(x.dtype(), "all_reduce", [&]<class T>() {
      std::vector<const T*> summands;
      for (int peer = 0; peer < size(); ++peer) summands.push_back(all.data<T>() + peer * x.numel());
      reduce_in_order(Cpu{}, summands, {x.data<T>()}, x.numel(), op);
    });
  } else {
    const Parts parts(x, size(), members_.row);
    reduce_own_part(call, x, parts(rank(), 0).data,
                    [&](Transfer& transfer, int64_t row) { queue_gather(transfer, parts, row); });
  }
  if (const auto medians = rounds_.finished(bytes, std::chrono::duration<double>(Clock::now() - begun).count())) {
    const Tensor means = cpu_tensor<double>({(*medians)[0], (*medians)[1]});
    do_all_reduce(means, Reduce::mean, phase);
    rounds_.decide(bytes, {means.data<double>()[0], means.data<double>()[1]});
  }
  values.copy_from(x);
}

void MpiGroup::do_reduce_scatter(const Tensor& from, const Tensor& to, Reduce op, std::string_view phase) {
  const Tensor in = pinned_copy(from), out = host_like(to);
  reduce_own_part({Collective::reduce_scatter, phase, in.dtype(), op, 0, in.bytes()}, in, at(out, 0),
                  [](Transfer&, int64_t) {});
  to.copy_from(out);
}

void MpiGroup::gather(const CollectiveCall& call, const Tensor& in, const Tensor& out) {
  const Parts parts(out, size(), members_.row);
  copy_bytes(Cpu{}, at(in, 0), parts(rank(), 0).data, in.bytes());
  if (between_nodes_ && in.bytes() >= kRingPart) return ring_gather(call, out);
  if (size() > MpiMembers::kFewMembers && fits_rounds(in.bytes())) return gather_in_rounds(call, out);
  Transfer transfer(members_, call, {out}, Transfer::depth(size()));
  for (int64_t row = 0; row < parts.rows(); ++row) queue_gather(transfer, parts, row);
  transfer.finish();
}

// The all-gather of Bruck et al. 1997: in round i, a rank sends up to 2^i parts that the rank at distance 2^i lacks.
void MpiGroup::gather_in_rounds(const CollectiveCall& call, const Tensor& out) {
  const int64_t part = out.bytes() / size();
  const Tensor parts({out.bytes()}, DType::u8, kCpu);  // parts of this rank, of the rank before it, and so on
  const auto owner = [&](int i) { return at(out, (rank() + size() - i) % size() * part); };
  std::copy_n(owner(0), part, at(parts, 0));
  const auto bytes = [&](int round) { return std::min(1 << round, size() - (1 << round)) * part; };
  Transfer transfer(members_, call, {out}, 1);
  const auto own = [&](int round) { return Piece{at(parts, 0), bytes(round)}; };
  const auto arriving = [&](int round) { return Piece{at(parts, (1 << round) * part), bytes(round)}; };
  transfer.open_in_rounds(own, arriving);
  transfer.finish();
  for (int i = 1; i < size(); ++i) std::copy_n(at(parts, i * part), part, owner(i));
}

// Each rank passes the parts that arrive from the rank before it on to the rank after it.
void MpiGroup::ring_gather(const CollectiveCall& call, const Tensor& out) {
  const Parts parts(out, size(), members_.piece);
  const int64_t rows = parts.rows(), arriving = rows * (size() - 1);
  // The i-th piece of the own part, then of the part of the rank before, and so on.
  const auto piece = [&](int64_t i) {
    return parts(static_cast<int>((rank() + size() - i / rows) % size()), i % rows);
  };
  Transfer transfer(members_, call, {out}, kDepth);
  transfer.open();
  for (int64_t i = 0; i < arriving; ++i) transfer.receive(previous(), piece(i + rows), kGather, i);
  for (int64_t i = 0; i < arriving; ++i) {
    transfer.wait(kGather, i - rows);
    transfer.send(next(), piece(i), kGather, i + kDepth);
  }
  transfer.finish();
}

// Rank 0 sends its values to rank 1, which adds its own and sends the sums to rank 2, and so on. The last rank sends
// the sums of all ranks around the ring. All ranks work on different pieces at the same time.
void MpiGroup::chain_all_reduce(const CollectiveCall& call, const Tensor& x) {
  const int last = size() - 1;
  const Parts whole(x, 1, members_.piece);
  const int64_t rows = whole.rows(), longest = whole.longest_piece(), item = size_of(x.dtype());
  const Tensor sums({kDepth * longest / item}, x.dtype(), kCpu);  // partial sums of the ranks before this one
  Transfer transfer(members_, call, {x, sums}, kDepth);
  transfer.open();
  const auto arriving = [&](int64_t row) { return Piece{at(sums, row % kDepth * longest), whole(0, row).bytes}; };
  for (int64_t row = 0; rank() > 0 && row < kDepth; ++row) transfer.receive(previous(), arriving(row), kScatter, row);
  int64_t passed = 0;
  const auto pass = [&] {
    if (rank() < last - 1) transfer.send(next(), whole(0, passed), kGather, passed + kDepth);
    ++passed;
  };
  for (int64_t row = 0; row < rows + kDepth; ++row) {
    transfer.wait(kScatter, row);
    const Piece own = whole(0, row);
    if (row < rows && rank() > 0) {
      dispatch_real(x.dtype(), "reduce", [&]<class T>() {
        T* to = reinterpret_cast<T*>(own.data);
        const auto* from = reinterpret_cast<const T*>(arriving(row).data);
        reduce_in_order<T>(Cpu{}, {from, to}, {to}, own.bytes / item, Reduce::sum);
      });
      transfer.receive(previous(), arriving(row + kDepth), kScatter, row + kDepth);
      if (rank() == last && call.reduce == Reduce::mean)
        divide(Cpu{}, x.view({x.numel()}).range(row * longest / item, own.bytes / item), size());
    }
    transfer.send(next(), own, rank() == last ? kGather : kScatter, row + kDepth);
    if (rank() == last || row < kDepth) continue;
    // The partial sums of this row have left, so its memory is free for the results.
    transfer.receive(previous(), whole(0, row - kDepth), kGather, row - kDepth);
    while (passed <= row - kDepth && transfer.done(kGather, passed)) pass();
  }
  while (rank() < last && passed < rows) {
    transfer.wait(kGather, passed);
    pass();
  }
  transfer.finish();
}

void MpiGroup::do_all_gather(const Tensor& from, const Tensor& to, std::string_view phase) {
  const Tensor in = pinned_copy(from), out = host_like(to);
  gather({Collective::all_gather, phase, in.dtype(), Reduce::sum, 0, in.bytes()}, in, out);
  to.copy_from(out);
}

void MpiGroup::do_all_to_all(const Tensor& from, const Tensor& to, std::string_view phase) {
  const Tensor in = pinned_copy(from), out = host_like(to);
  const Parts sent(in, size(), members_.row), received(out, size(), members_.row);
  Transfer transfer(members_, {Collective::all_to_all, phase, in.dtype(), Reduce::sum, 0, in.bytes()}, {in, out},
                    Transfer::depth(size()));
  for (int64_t row = 0; row < sent.rows(); ++row)
    transfer.queue(
        kScatter, row, [&](int peer) { return sent(peer, row); }, [&](int peer) { return received(peer, row); });
  copy_bytes(Cpu{}, sent(rank(), 0).data, received(rank(), 0).data, in.bytes() / size());
  transfer.finish();
  to.copy_from(out);
}

// A binomial tree: counting ranks from the root, the parent of a rank is the rank without its lowest set bit.
void MpiGroup::do_broadcast(const Tensor& values, int root, std::string_view phase) {
  const Tensor x = rank() == root ? pinned_copy(values) : host_like(values);
  const Parts whole(x, 1, members_.piece);
  Transfer transfer(members_, {Collective::broadcast, phase, x.dtype(), Reduce::sum, root, x.bytes()}, {x},
                    Transfer::depth(size()));
  transfer.open();
  const int own = (rank() - root + size()) % size(), children = own == 0 ? size() : own & -own;
  for (int64_t row = 0; own > 0 && row < whole.rows(); ++row) {
    const Piece piece = whole(0, row);
    transfer.receive((own - children + root) % size(), piece, kGather, row);
  }
  if (own > 0) transfer.wait(kGather, whole.rows());
  for (int64_t row = 0; row < whole.rows(); ++row)
    for (int distance = 1; distance < children && own + distance < size(); distance *= 2) {
      const Piece piece = whole(0, row);
      transfer.send((own + distance + root) % size(), piece, kGather, row);
    }
  transfer.finish();
  if (rank() != root) values.copy_from(x);
}

// A dissemination barrier: after i rounds, this rank and the 2^i − 1 ranks before it have joined.
void MpiGroup::do_barrier(std::string_view phase) {
  const auto nothing = [](int) { return Piece(); };
  Transfer transfer(members_, {Collective::barrier, phase}, {}, 1);
  transfer.open_in_rounds(nothing, nothing);
  transfer.finish();
}

}  // namespace godwit
