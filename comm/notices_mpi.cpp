#include "comm/notices_mpi.h"

#include <algorithm>
#include <cstring>

#include "comm/session_mpi.h"

namespace godwit {

Notices::Notices(MPI_Comm world) {
  check_mpi(MPI_Comm_dup(world, &comm_), "MPI_Comm_dup");
  int size = 0;
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size);
  left_.resize(static_cast<size_t>(size));
  post();
}

void Notices::close() {
  std::lock_guard lock(mutex_);
  check_mpi(MPI_Waitall(static_cast<int>(sending_.size()), sending_.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
  check_mpi(MPI_Cancel(&receiving_), "MPI_Cancel");
  check_mpi(MPI_Wait(&receiving_, MPI_STATUS_IGNORE), "MPI_Wait");
  check_mpi(MPI_Comm_free(&comm_), "MPI_Comm_free");
}

void Notices::post() {
  check_mpi(MPI_Irecv(&incoming_, sizeof(Notice), MPI_BYTE, MPI_ANY_SOURCE, 0, comm_, &receiving_), "MPI_Irecv");
}

void Notices::poll() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  for (int arrived = 1; arrived;) {
    check_mpi(MPI_Test(&receiving_, &arrived, MPI_STATUS_IGNORE), "MPI_Test");
    if (!arrived) break;
    take(incoming_);
    post();
  }
}

void Notices::take(const Notice& notice) {
  if (!notice.failed) {
    left_[static_cast<size_t>(notice.rank)] = Clock::now();
    return;
  }
  failures_.emplace(notice.rank, notice.text);
  if (notice.rank != rank_ && !failed_peer_) failed_peer_ = notice.rank;
}

void Notices::send(bool failed, const std::string& text) {
  Notice& notice = outgoing_.emplace_back();
  notice.rank = rank_;
  notice.failed = failed;
  std::strncpy(notice.text, text.c_str(), sizeof(notice.text) - 1);
  take(notice);
  for (int peer = 0; peer < static_cast<int>(left_.size()); ++peer)
    if (peer != rank_)
      check_mpi(MPI_Isend(&notice, sizeof(Notice), MPI_BYTE, peer, 0, comm_, &sending_.emplace_back()), "MPI_Isend");
}

void Notices::fail(const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (!failures_.contains(rank_)) send(true, reason);
}

void Notices::leave() {
  std::lock_guard lock(mutex_);
  if (!left_[static_cast<size_t>(rank_)]) send(false, "");
}

std::map<int, std::string> Notices::failures() const {
  std::lock_guard lock(mutex_);
  return failures_;
}

std::optional<int> Notices::failed_peer() const {
  std::lock_guard lock(mutex_);
  return failed_peer_;
}

std::optional<Notices::Clock::time_point> Notices::left_at(int rank) const {
  std::lock_guard lock(mutex_);
  return left_[static_cast<size_t>(rank)];
}

int Notices::lowest_left() const {
  std::lock_guard lock(mutex_);
  const auto found = std::find_if(left_.begin(), left_.end(), [](const auto& at) { return at.has_value(); });
  return static_cast<int>(found - left_.begin());
}

bool Notices::all_left() const {
  std::lock_guard lock(mutex_);
  return std::all_of(left_.begin(), left_.end(), [](const auto& at) { return at.has_value(); });
}

}  // namespace godwit
