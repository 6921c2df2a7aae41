#include "comm/transport/transfer_mpi.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "comm/failure.h"
#include "comm/transport/session_mpi.h"

namespace godwit {
namespace {

constexpr int kHeaderTag = 0;
constexpr int64_t kLargestMessage = int64_t{64} << 20;  // bytes; MPI counts in int, and each piece restarts the timeout
// A waiting thread polls and yields its core for a moment, then sleeps between polls: briefly once all members have
// come, longer while one is missing.
constexpr std::chrono::microseconds kYielding{100}, kSleep{50}, kLongSleep{250};
constexpr std::chrono::seconds kGrace{1};  // for messages in flight from a member that has left or failed

}  // namespace

void MpiWorld::keep(std::shared_ptr<void> memory) {
  std::lock_guard lock(mutex_);
  kept_.push_back(std::move(memory));
}

// A CollectiveCall as sent over the network.
struct Transfer::Header {
  int32_t collective, dtype, reduce, root;
  int64_t bytes;
  int64_t phase_length;
  char phase[96];  // first characters of the phase

  static Header of(const CollectiveCall& call) {
    Header header;
    std::memset(&header, 0, sizeof(header));
    header.collective = static_cast<int32_t>(call.collective);
    header.dtype = static_cast<int32_t>(call.dtype);
    header.reduce = static_cast<int32_t>(call.reduce);
    header.root = call.root;
    header.bytes = call.bytes;
    header.phase_length = static_cast<int64_t>(call.phase.size());
    std::memcpy(header.phase, call.phase.data(), std::min(call.phase.size(), sizeof(header.phase)));
    return header;
  }
  CollectiveCall call() const {
    const auto length = std::min(static_cast<size_t>(phase_length), sizeof(phase));
    return {static_cast<Collective>(collective),
            std::string_view(phase, length),
            static_cast<DType>(dtype),
            static_cast<Reduce>(reduce),
            root,
            bytes,
            nullptr,
            nullptr};
  }
  bool operator==(const Header& other) const { return std::memcmp(this, &other, sizeof(Header)) == 0; }
};

struct Transfer::State {
  std::vector<Tensor> memory;
  Header mine;
  std::vector<Header> theirs;
  std::vector<bool> met;  // [member]: its header has arrived
  std::vector<MPI_Request> requests;
  std::vector<int> peers;       // of each request
  std::vector<bool> is_header;  // of each request: whether it receives a header
  int open = 0;                 // pending requests
  std::string trouble;          // error: a member made another call, or a message failed
  std::vector<int> indices;     // scratch memory of advance()
  std::vector<MPI_Status> statuses;
};

Transfer::Transfer(const MpiMembers& members, const CollectiveCall& call)
    : members_(members), call_(call), state_(std::make_unique<State>()) {}

// Delegates, so that the destructor runs and keeps pending buffers if a message cannot be posted.
Transfer::Transfer(const MpiMembers& members, const CollectiveCall& call, std::vector<Tensor> memory) : Transfer(members, call) {
  const int size = static_cast<int>(members.world_ranks.size());
  state_->memory = std::move(memory);
  state_->mine = Header::of(call);
  state_->theirs.resize(static_cast<size_t>(size));
  state_->met.resize(static_cast<size_t>(size));
  state_->met[static_cast<size_t>(members.rank)] = true;
  state_->theirs[static_cast<size_t>(members.rank)] = state_->mine;
  for (int step = 1; step < size; ++step) {
    const int peer = (members.rank + step) % size;
    receive(peer, &state_->theirs[static_cast<size_t>(peer)], sizeof(Header), kHeaderTag);
    state_->is_header.back() = true;
    send(peer, &state_->mine, sizeof(Header), kHeaderTag);
  }
}

Transfer::~Transfer() {
  if (state_->open > 0) members_.world->keep(std::shared_ptr<State>(std::move(state_)));
}

template <class F>
void Transfer::post(int peer, int64_t bytes, F&& message) {
  for (int64_t begin = 0; begin < bytes; begin += kLargestMessage) {
    MPI_Request request = MPI_REQUEST_NULL;
    message(begin, static_cast<int>(std::min(kLargestMessage, bytes - begin)), request);
    state_->requests.push_back(request);
    state_->peers.push_back(peer);
    state_->is_header.push_back(false);
    ++state_->open;
  }
}

void Transfer::send(int peer, const void* data, int64_t bytes, int tag) {
  post(peer, bytes, [&](int64_t begin, int count, MPI_Request& request) {
    check_mpi(
        MPI_Isend(static_cast<const std::byte*>(data) + begin, count, MPI_BYTE, peer, tag, members_.comm, &request),
        "MPI_Isend");
  });
}

void Transfer::receive(int peer, void* data, int64_t bytes, int tag) {
  post(peer, bytes, [&](int64_t begin, int count, MPI_Request& request) {
    check_mpi(MPI_Irecv(static_cast<std::byte*>(data) + begin, count, MPI_BYTE, peer, tag, members_.comm, &request),
              "MPI_Irecv");
  });
}

void Transfer::finish() {
  auto last = Clock::now();
  while (state_->open > 0) {
    if (advance()) {
      if (!state_->trouble.empty()) explain();
      last = Clock::now();
    } else if (const auto idle = Clock::now() - last; idle < kYielding) {
      std::this_thread::yield();
    } else {
      look_around(last);
      const bool complete = std::find(state_->met.begin(), state_->met.end(), false) == state_->met.end();
      std::this_thread::sleep_for(complete ? kSleep : std::clamp<Clock::duration>(idle / 16, kSleep, kLongSleep));
    }
  }
  state_->requests.clear();
  state_->peers.clear();
  state_->is_header.clear();
}

bool Transfer::advance() {
  State& s = *state_;
  s.indices.resize(s.requests.size());
  s.statuses.resize(s.requests.size());
  int done = 0;
  const int result =
      MPI_Testsome(static_cast<int>(s.requests.size()), s.requests.data(), &done, s.indices.data(), s.statuses.data());
  if (result != MPI_ERR_IN_STATUS) check_mpi(result, "MPI_Testsome");
  if (done <= 0) return false;
  s.open -= done;
  for (int i = 0; i < done; ++i) {
    const auto request = static_cast<size_t>(s.indices[static_cast<size_t>(i)]);
    const auto peer = static_cast<size_t>(s.peers[request]);
    const int error = s.statuses[static_cast<size_t>(i)].MPI_ERROR;
    if (result == MPI_ERR_IN_STATUS && error != MPI_SUCCESS && error != MPI_ERR_PENDING) {
      char text[MPI_MAX_ERROR_STRING] = "";
      int length = 0;
      MPI_Error_string(error, text, &length);
      s.trouble = detail::concat("a message to or from rank ", members_.world_ranks[peer], " failed: ", text);
    } else if (s.is_header[request]) {
      s.met[peer] = true;
      if (!(s.theirs[peer] == s.mine) && s.trouble.empty()) s.trouble = "ranks disagree";
    }
  }
  return true;
}

// Checks for failures, departed members and the timeout while nothing arrives.
void Transfer::look_around(Clock::time_point last) {
  ControlChannel& control = members_.world->control;
  control.poll();
  if (const std::optional<int> failed = control.failed_peer())
    give_up(detail::concat("rank ", *failed, " failed: ", control.failures().at(*failed)));
  const auto now = Clock::now();
  for (size_t i = 0; i < state_->requests.size(); ++i) {
    if (state_->requests[i] == MPI_REQUEST_NULL) continue;
    const int rank = members_.world_ranks[static_cast<size_t>(state_->peers[i])];
    const auto left = control.finished_at(rank);
    if (left && now - std::max(*left, last) > kGrace)
      give_up(detail::concat("rank ", rank, " has ended and will not come"));
  }
  if (now - std::max(last, control.last_busy()) <= members_.world->timeout) return;
  const std::vector<int> absent = absentees(true), cut_off = absentees(false);
  const std::string within =
      detail::concat(" within ", static_cast<double>(members_.world->timeout.count()) / 1000, " s");
  if (!absent.empty()) give_up("timeout: " + rank_list(absent) + " did not come" + within);
  give_up("timeout: " + rank_list(cut_off) + " came, but " + (cut_off.size() == 1 ? "its" : "their") +
          " data did not get through" + within);
}

// Throws for a mismatch, or for a failed message, which a mismatch may have caused. Waits up to kGrace for more
// headers.
void Transfer::explain() {
  State& s = *state_;
  const auto start = Clock::now();
  while (Clock::now() - start < kGrace && std::find(s.met.begin(), s.met.end(), false) != s.met.end())
    if (!advance()) std::this_thread::sleep_for(kSleep);
  const size_t base = s.met[0] ? 0 : static_cast<size_t>(members_.rank);
  for (size_t i = 0; i < s.theirs.size(); ++i)
    if (s.met[i] && !(s.theirs[i] == s.theirs[base]))
      give_up(
          describe_mismatch(members_.world_ranks[base], s.theirs[base].call(), members_.world_ranks[i], s.theirs[i].call()));
  give_up(s.trouble);
}

std::vector<int> Transfer::absentees(bool headers_only) const {
  std::vector<int> ranks;
  for (size_t i = 0; i < state_->requests.size(); ++i)
    if (state_->requests[i] != MPI_REQUEST_NULL && (state_->is_header[i] || !headers_only))
      ranks.push_back(members_.world_ranks[static_cast<size_t>(state_->peers[i])]);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

void Transfer::give_up(const std::string& reason) const {
  godwit::fail(detail::concat("rank ", members_.world_ranks[static_cast<size_t>(members_.rank)], ": phase '",
                              call_.phase, "': "),
               reason);
}

}  // namespace godwit
