#include "comm/transport/control_channel_mpi.h"

#include <algorithm>
#include <cstring>

#include "comm/transport/session_mpi.h"

namespace godwit {
namespace {

constexpr std::chrono::milliseconds kCheckInterval{10};  // between two checks of the processes of this host
// The notices of an ended process arrive within kGrace. The ranks of a host report a lost process at different times,
// kBetweenRanks apart, so that only one rank reports it.
constexpr std::chrono::milliseconds kGrace{100}, kBetweenRanks{30};
constexpr std::chrono::seconds kSuspended{1};  // a waiting rank polls much more often

}  // namespace

ControlChannel::ControlChannel(MPI_Comm world) {
  check_mpi(MPI_Comm_dup(world, &comm_), "MPI_Comm_dup");
  int size = 0;
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size);
  finished_.resize(static_cast<size_t>(size));
  steps_.resize(static_cast<size_t>(size));
  post();
}

void ControlChannel::close() {
  std::lock_guard lock(mutex_);
  check_mpi(MPI_Waitall(static_cast<int>(sending_.size()), sending_.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  check_mpi(MPI_Cancel(&receiving_), "MPI_Cancel");
  check_mpi(MPI_Wait(&receiving_, MPI_STATUS_IGNORE), "MPI_Wait");
  check_mpi(MPI_Comm_free(&comm_), "MPI_Comm_free");
}

void ControlChannel::post() {
  check_mpi(MPI_Irecv(&incoming_, sizeof(Notice), MPI_BYTE, MPI_ANY_SOURCE, 0, comm_, &receiving_), "MPI_Irecv");
}

void ControlChannel::poll() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  notice_suspension();
  if (receiving_ == MPI_REQUEST_NULL) post();  // an earlier poll() failed to post it
  for (int arrived = 1; arrived;) {
    MPI_Status status;
    const int result = MPI_Test(&receiving_, &arrived, &status);
    int error = MPI_SUCCESS;
    MPI_Error_class(result, &error);
    const bool too_long = error == MPI_ERR_TRUNCATE;
    if (!too_long) check_mpi(result, "MPI_Test");
    if (!too_long && !arrived) break;
    receive(status, too_long);
    post();
  }
  check_processes();
  notice_suspension();  // MPI may yield the core, so a suspension often begins within MPI_Test()
}

void ControlChannel::notice_suspension() {
  const auto now = Clock::now();
  if (now - polled_ > kSuspended) last_busy_ = now;
  polled_ = now;
}

void ControlChannel::check_processes() {
  const auto now = Clock::now();
  if (now - processes_checked_ < kCheckInterval) return;
  processes_checked_ = now;
  for (const int rank : MpiSession::instance().peers_on_host().ended()) dead_.emplace(rank, now);
}

void ControlChannel::receive(const MPI_Status& status, bool too_long) {
  const std::string reason = too_long ? "it is too long" : defect(incoming_, status);
  if (reason.empty()) return take(incoming_);
  failures_.emplace(status.MPI_SOURCE, "it sent a malformed notice: " + reason);
  if (!failed_peer_) failed_peer_ = status.MPI_SOURCE;
}

std::string ControlChannel::defect(const Notice& notice, const MPI_Status& status) const {
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  if (bytes != sizeof(Notice)) return detail::concat(bytes, " bytes, expected ", sizeof(Notice));
  if (notice.rank != status.MPI_SOURCE) return detail::concat("it names rank ", notice.rank, " as its sender");
  if (notice.kind < Kind::failed || notice.kind > Kind::reported)
    return detail::concat("its kind is ", static_cast<int32_t>(notice.kind));
  if (!std::memchr(notice.text, 0, sizeof(notice.text))) return "its text is not terminated";
  return {};
}

void ControlChannel::take(const Notice& notice) {
  const auto rank = static_cast<size_t>(notice.rank);
  if (notice.kind == Kind::failed) {
    failures_.emplace(notice.rank, notice.text);
    if (notice.rank != rank_ && !failed_peer_) failed_peer_ = notice.rank;
  } else if (notice.kind == Kind::finished) {
    finished_[rank] = Clock::now();
    if (!steps_[rank]) steps_[rank] = INT64_MAX;  // it has begun all of its steps
  } else if (notice.kind == Kind::busy) {
    if (notice.rank != rank_) last_busy_ = Clock::now();
  } else if (notice.kind == Kind::stop) {
    stop_requested_ = true;
  } else if (notice.kind == Kind::reported) {
    reported_ = true;
  } else {
    steps_[rank] = notice.steps;
    send_steps();
  }
}

void ControlChannel::send(Kind kind, const std::string& text) {
  int sent = 0;
  check_mpi(MPI_Testall(static_cast<int>(sending_.size()), sending_.data(), &sent, MPI_STATUSES_IGNORE), "MPI_Testall");
  if (sent) sending_.clear(), outgoing_.clear();
  Notice& notice = outgoing_.emplace_back();
  notice.kind = kind;
  notice.rank = rank_;
  notice.steps = begun_;
  std::strncpy(notice.text, text.c_str(), sizeof(notice.text) - 1);
  for (int peer = 0; peer < static_cast<int>(finished_.size()); ++peer)
    if (peer != rank_) {
      MPI_Request& request = sending_.emplace_back(MPI_REQUEST_NULL);
      check_mpi(MPI_Isend(&notice, sizeof(Notice), MPI_BYTE, peer, 0, comm_, &request), "MPI_Isend");
    }
  take(notice);
}

bool ControlChannel::fail(const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (failures_.contains(rank_)) return false;
  send(Kind::failed, reason);
  return true;
}

void ControlChannel::finish() {
  std::lock_guard lock(mutex_);
  if (!finished_[static_cast<size_t>(rank_)]) send(Kind::finished);
}

void ControlChannel::busy() {
  std::lock_guard lock(mutex_);
  send(Kind::busy);
}

void ControlChannel::report() {
  std::lock_guard lock(mutex_);
  send(Kind::reported);
}

// A rank that has finished already counts as having begun every step.
void ControlChannel::send_steps() {
  const auto own = static_cast<size_t>(rank_);
  if (!steps_[own] && !finished_[own]) send(Kind::steps);
}

std::optional<bool> ControlChannel::may_continue(bool stop) {
  std::lock_guard lock(mutex_);
  if (stop) send_steps();
  if (steps_[static_cast<size_t>(rank_)]) {
    int64_t last = 0;
    bool all = true;
    for (const std::optional<int64_t>& steps : steps_) {
      all = all && steps;
      last = std::max(last, steps.value_or(0));
    }
    if (begun_ >= last) return all ? std::optional(false) : std::nullopt;
  }
  ++begun_;
  return true;
}

bool ControlChannel::stop_requested(bool stop) {
  std::lock_guard lock(mutex_);
  if (stop && !stop_requested_) send(Kind::stop);
  return stop_requested_;
}

void ControlChannel::forget_stop() {
  std::lock_guard lock(mutex_);
  for (size_t rank = 0; rank < steps_.size(); ++rank)
    if (!finished_[rank]) steps_[rank].reset();
}

std::map<int, std::string> ControlChannel::failures() const {
  std::lock_guard lock(mutex_);
  return failures_;
}

std::optional<int> ControlChannel::failed_peer() const {
  std::lock_guard lock(mutex_);
  return failed_peer_;
}

std::optional<int> ControlChannel::lost_peer() const {
  std::lock_guard lock(mutex_);
  const auto until = Clock::now() - kGrace - kBetweenRanks * MpiSession::instance().rank_on_host();
  for (const auto& [rank, since] : dead_)
    if (since < until && !finished_[static_cast<size_t>(rank)] && !failures_.contains(rank)) return rank;
  return std::nullopt;
}

std::optional<ControlChannel::Clock::time_point> ControlChannel::finished_at(int rank) const {
  std::lock_guard lock(mutex_);
  return finished_[static_cast<size_t>(rank)];
}

ControlChannel::Clock::time_point ControlChannel::last_busy() const {
  std::lock_guard lock(mutex_);
  return last_busy_;
}

std::vector<int> ControlChannel::undecided() const {
  std::lock_guard lock(mutex_);
  std::vector<int> ranks;
  for (size_t rank = 0; rank < steps_.size(); ++rank)
    if (!steps_[rank]) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

// mpirun wakes a stopped process in order to end it. This process has no failure of its own, so it must not report the
// failures of others again.
int ControlChannel::reporter() const {
  std::lock_guard lock(mutex_);
  for (const auto& [rank, reason] : failures_)
    if (finished_[static_cast<size_t>(rank)]) return rank;
  const auto found = std::find_if(finished_.begin(), finished_.end(), [](const auto& at) { return at.has_value(); });
  return static_cast<int>(found - finished_.begin());
}

bool ControlChannel::all_finished() const {
  std::lock_guard lock(mutex_);
  return std::all_of(finished_.begin(), finished_.end(), [](const auto& at) { return at.has_value(); });
}

bool ControlChannel::reported() const {
  std::lock_guard lock(mutex_);
  return reported_;
}

}  // namespace godwit
