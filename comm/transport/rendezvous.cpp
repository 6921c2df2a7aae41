#include "comm/transport/rendezvous.h"

#include <algorithm>
#include <utility>

#include "comm/failure.h"

namespace godwit {
namespace {

constexpr std::chrono::milliseconds kWaitSlice{500};  // a waiting member wakes after this time

}  // namespace

Rendezvous::Rendezvous(std::vector<int> world_ranks, std::chrono::milliseconds timeout, const BusyRanks& busy)
    : ranks_(std::move(world_ranks)),
      timeout_(timeout),
      busy_(busy),
      calls_(ranks_.size()),
      done_(ranks_.size()),
      here_(ranks_.size(), false) {}

void Rendezvous::enter(int member, const CollectiveCall& call) {
  std::unique_lock lock(mutex_);
  if (!failure_.empty() || retired_) give_up(member, call.phase, false);
  calls_[static_cast<size_t>(member)] = call;
  here_[static_cast<size_t>(member)] = true;
  if (++entered_ == static_cast<int>(ranks_.size())) {
    const std::string differing = difference();
    if (!differing.empty()) failure_ = differing;
    else finish_meeting();
    lock.unlock();  // before waking the other members, which lock it
    changed_.notify_all();
    if (!differing.empty()) godwit::fail(begin_message(member, call.phase), differing);
    return;
  }
  const uint64_t mine = meeting_;
  bool in_time = false;
  for (auto start = BusyRanks::Clock::now(), polled = start; !in_time;) {
    const auto now = BusyRanks::Clock::now();
    if (now - polled > 2 * kWaitSlice) start = now;  // the process was suspended, so other members need time too
    polled = now;
    const auto limit = std::max(start, busy_.last()) + timeout_;
    if (limit <= now) break;
    in_time = changed_.wait_until(lock, std::min(limit, now + kWaitSlice),
                                  [&] { return meeting_ != mine || !failure_.empty() || retired_.has_value(); });
  }
  if (meeting_ == mine) give_up(member, call.phase, !in_time);
}

void Rendezvous::finish_meeting() {
  entered_ = 0;
  here_.assign(ranks_.size(), false);
  ++meeting_;
}

void Rendezvous::leave(int member, Event done) {
  std::unique_lock lock(mutex_);
  done_[static_cast<size_t>(member)] = std::move(done);
  if (++left_ == static_cast<int>(ranks_.size())) {
    left_ = 0;
    ++parting_;
    lock.unlock();
    changed_.notify_all();
    return;
  }
  const uint64_t mine = parting_;
  changed_.wait(lock, [&] { return parting_ != mine; });
}

void Rendezvous::check_failure(int member, std::string_view phase) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) give_up(member, phase, false);
}

void Rendezvous::fail(int world_rank, const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = detail::concat("rank ", world_rank, " failed: ", reason);
  }
  changed_.notify_all();
}

void Rendezvous::retire(int world_rank) {
  {
    std::lock_guard lock(mutex_);
    if (!retired_) retired_ = world_rank;
  }
  changed_.notify_all();
}

std::string Rendezvous::difference() const {
  for (size_t i = 1; i < calls_.size(); ++i)
    if (!same(calls_[0], calls_[i]))
      return describe_mismatch(ranks_[0], calls_[0], ranks_[i], calls_[i]);
  return {};
}

std::string Rendezvous::begin_message(int member, std::string_view phase) const {
  return detail::concat("rank ", ranks_[static_cast<size_t>(member)], ": phase '", phase, "': ");
}

// Call with the mutex held. A timeout makes the group fail, because the pointers that members published become invalid.
void Rendezvous::give_up(int member, std::string_view phase, bool late) {
  std::string reason = failure_;
  if (reason.empty() && retired_) reason = detail::concat("rank ", *retired_, " has ended and will not join");
  if (reason.empty() && late) {
    std::vector<int> missing;
    for (size_t i = 0; i < ranks_.size(); ++i)
      if (!here_[i]) missing.push_back(ranks_[i]);
    reason = detail::concat("timeout: ", rank_list(missing), " did not join within ",
                            static_cast<double>(timeout_.count()) / 1000, " s");
    failure_ = reason;
    changed_.notify_all();
  }
  godwit::fail(begin_message(member, phase), reason);
}

}  // namespace godwit
