#include "comm/group.h"

#include <chrono>
#include <utility>

#include "engine/clock.h"
#include "engine/graph.h"
#include "engine/profile.h"
#include "engine/rounded_copy.h"

namespace godwit {
namespace {

thread_local CallObserver* observer = nullptr;

void check_real(const Tensor& x, const char* operation) {
  check(x.dtype() == DType::f32 || x.dtype() == DType::f64, operation, ": takes float32 or float64, not ", x.dtype());
}

void check_pair(const Tensor& in, const Tensor& out, const char* operation) {
  check(in.defined() && out.defined(), operation, ": a tensor is undefined");
  check(in.dtype() == out.dtype(), operation, ": in is ", in.dtype(), ", out is ", out.dtype());
  check(in.device() == out.device(), operation, ": in is on ", in.device(), ", out on ", out.device());
  const auto* in_begin = static_cast<const std::byte*>(in.address());
  const auto* out_begin = static_cast<const std::byte*>(out.address());
  check(in_begin + in.bytes() <= out_begin || out_begin + out.bytes() <= in_begin, operation,
        ": in and out overlap; pass separate tensors");
}

// Called before a collective writes x.
void expire_copies(const Tensor& x) {
  if (x.device().is_cuda() && x.numel() > 0) expire_rounded_copies(x.address(), x.bytes());
}

}  // namespace

Group::Group(int rank, std::vector<Link> links, std::shared_ptr<CommStats> stats, std::shared_ptr<RunControl> control)
    : rank_(rank), links_(std::move(links)), stats_(std::move(stats)), control_(std::move(control)) {
  check(rank >= 0 && rank < size(), "group: rank ", rank, " of ", size(), " ranks; expected 0 to ", size() - 1);
  check(stats_ != nullptr && control_ != nullptr, "group: no CommStats or RunControl was given");
}

CallObserver::CallObserver(std::function<void(bool)> f) : f_(std::move(f)), before_(std::exchange(observer, this)) {}
CallObserver::~CallObserver() { observer = before_; }

// Reports a collective to the thread's observer, but no collectives of other groups within this collective.
struct Group::Observed {
  Observed() {
    if (by) by->f_(true);
  }
  ~Observed() {
    if (by) by->f_(false);
    observer = by;
  }
  CallObserver* by = std::exchange(observer, nullptr);
};

template <class F, class G>
void Group::run(std::string_view phase, F bytes_to_peer, G call) {
  check(!capturing(), phase, ": a collective cannot be part of a captured CUDA graph; communicate between passes, or ",
        "do not use graphs");
  int64_t intra = 0, inter = 0;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    (links_[static_cast<size_t>(peer)] == Link::intra ? intra : inter) += bytes_to_peer(peer);
  }
  stats_->add(phase, intra, inter);
  const auto start = Clock::now();
  time_follows_ = false;
  {
    const Observed observed;
    const ProfileRange range(phase);
    call();
  }
  if (!time_follows_) add_time(phase, seconds_since(start));
  ++calls_;
}

void Group::add_time(std::string_view phase, double seconds) {
  stats_->add_time(phase, seconds);
  seconds_ += seconds;
}

void Group::all_reduce(const Tensor& x, Reduce op, std::string_view phase) {
  check(x.defined(), "all_reduce: the tensor is undefined");
  check_real(x, "all_reduce");
  expire_copies(x);
  // Counted as a reduce-scatter (the peer's part is sent to it) and an all-gather (this rank's part is sent to all).
  const auto part_bytes = [&](int i) {
    return (part_begin(x.numel(), size(), i + 1) - part_begin(x.numel(), size(), i)) * size_of(x.dtype());
  };
  run(
      phase, [&](int peer) { return part_bytes(peer) + part_bytes(rank_); }, [&] { do_all_reduce(x, op, phase); });
}

void Group::reduce_scatter(const Tensor& in, const Tensor& out, Reduce op, std::string_view phase) {
  check_pair(in, out, "reduce_scatter");
  check_real(in, "reduce_scatter");
  check(in.numel() == out.numel() * size(), "reduce_scatter: in has ", in.numel(), " elements, out ", out.numel(),
        ", the group ", size(), " ranks; in must be out times ranks");
  expire_copies(out);
  run(
      phase, [&](int) { return out.bytes(); }, [&] { do_reduce_scatter(in, out, op, phase); });
}

void Group::all_gather(const Tensor& in, const Tensor& out, std::string_view phase) {
  check_pair(in, out, "all_gather");
  check(out.numel() == in.numel() * size(), "all_gather: in has ", in.numel(), " elements, out ", out.numel(),
        ", the group ", size(), " ranks; out must be in times ranks");
  expire_copies(out);
  run(
      phase, [&](int) { return in.bytes(); }, [&] { do_all_gather(in, out, phase); });
}

void Group::all_to_all(const Tensor& in, const Tensor& out, std::string_view phase) {
  check_pair(in, out, "all_to_all");
  check(in.numel() == out.numel() && in.numel() % size() == 0, "all_to_all: in has ", in.numel(), " elements, out ",
        out.numel(), "; both must be the same multiple of the ", size(), " ranks");
  expire_copies(out);
  run(
      phase, [&](int) { return in.bytes() / size(); }, [&] { do_all_to_all(in, out, phase); });
}

void Group::broadcast(const Tensor& x, int root, std::string_view phase) {
  check(x.defined(), "broadcast: the tensor is undefined");
  check(root >= 0 && root < size(), "broadcast: root is ", root, "; expected a rank from 0 to ", size() - 1);
  expire_copies(x);
  run(
      phase, [&](int) { return rank_ == root ? x.bytes() : 0; }, [&] { do_broadcast(x, root, phase); });
}

// Between the barriers, every rank has stopped, and no rank can request another stop.
void continue_steps(Group& world) {
  world.barrier("continue_steps");
  world.control()->forget_stop();
  world.barrier("continue_steps");
}

void Group::barrier(std::string_view phase) { do_barrier(phase); }

}  // namespace godwit
