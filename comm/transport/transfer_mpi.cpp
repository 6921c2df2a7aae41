#include "comm/transport/transfer_mpi.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <deque>
#include <set>
#include <thread>
#include <utility>

#include "comm/failure.h"
#include "comm/transport/session_mpi.h"

namespace godwit {
namespace {

constexpr int kHeaderTag = 0, kTags = 3;
// A waiting thread first polls and yields its core, longer in a short call, where a sleep would cost as much as the
// messages. Then it sleeps between polls: briefly once all members have joined the call, longer while one is missing.
constexpr std::chrono::microseconds kYielding{100}, kYieldingShort{500}, kSleep{50}, kLongSleep{250};
constexpr std::chrono::seconds kGrace{1};  // for messages in flight from a member that has left or failed

}  // namespace

void MpiWorld::keep(std::shared_ptr<void> memory) {
  std::lock_guard lock(mutex_);
  kept_.push_back(std::move(memory));
}

void MpiWorld::check_peers(int rank, std::string_view phase) {
  MpiSession::instance().set_phase(phase);
  control.poll();
  if (const std::optional<int> failed = control.failed_peer())
    godwit::fail("rank ", rank, ": phase '", phase, "': rank ", *failed, " failed: ", control.failures().at(*failed));
  const std::optional<int> lost = control.lost_peer();
  if (!lost) return;
  const std::vector<std::string>& hosts = MpiSession::instance().hosts();
  const auto named = [&](int r) { return detail::concat("rank ", r, " on ", hosts[static_cast<size_t>(r)]); };
  const std::string text = detail::concat(named(rank), ": phase '", phase, "': ", named(*lost),
                                          " has ended; its process was killed or has crashed");
  if (control.fail(text)) {
    std::fprintf(stderr, "%s\n", text.c_str());
    control.report();
  }
  godwit::fail(text);
}

// A CollectiveCall as sent over the network; 128 bytes.
struct Transfer::Header {
  int32_t collective = 0, dtype = 0, reduce = 0, root = 0;
  int64_t bytes = 0;
  char phase[104] = "";  // first characters of the phase, then zeros

  static Header of(const CollectiveCall& call) {
    Header header{static_cast<int32_t>(call.collective), static_cast<int32_t>(call.dtype),
                  static_cast<int32_t>(call.reduce), call.root, call.bytes};
    call.phase.copy(header.phase, sizeof(header.phase));
    return header;
  }
  CollectiveCall call() const {
    return {.collective = static_cast<Collective>(collective),
            .phase = {phase, strnlen(phase, sizeof(phase))},
            .dtype = static_cast<DType>(dtype),
            .reduce = static_cast<Reduce>(reduce),
            .root = root,
            .bytes = bytes};
  }
  bool operator==(const Header& other) const { return std::memcmp(this, &other, sizeof(Header)) == 0; }
};

struct Transfer::Message {
  int peer;
  Piece piece;
  int tag;
  int64_t row;
  bool sends;
  Piece behind = {};  // for a received description: destination of the data after it
  bool done = false;
};

// Messages of one tag and direction.
struct Transfer::Queue {
  std::deque<Message> messages;  // the first is incomplete
  size_t posted = 0;             // number of messages posted, from the front
  int in_flight = 0;             // posted and incomplete
};

struct Transfer::State {
  std::vector<Tensor> memory;
  // Descriptions and the data behind them. They are not in tensors, whose memory may be adjacent to a receive buffer:
  // over shared memory, Open MPI 4.1 writes all bytes of a message that is longer than the buffer.
  std::vector<std::unique_ptr<std::byte[]>> descriptions;
  bool opened = false, with_first_row = false;  // descriptions are queued; the first row is sent with them
  Header mine;
  std::vector<Header> theirs;
  std::vector<bool> described, joined;  // [member]: its header, or any of its messages, has arrived
  Queue queues[kTags][2];       // [tag][sends]
  std::vector<MPI_Request> requests;
  std::vector<Message*> in_flight;  // message of each request
  std::string error;                // a member made another call, or a message failed; empty: no error
  std::vector<int> indices;         // scratch memory of advance()
  std::vector<MPI_Status> statuses;

  std::byte* allocate(int64_t bytes) {
    return descriptions.emplace_back(std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes))).get();
  }
};

Transfer::Transfer(const MpiMembers& members, const CollectiveCall& call, std::vector<Tensor> memory, int64_t depth)
    : members_(members), call_(call), depth_(depth), state_(std::make_unique<State>()) {
  const size_t size = members.world_ranks.size(), own = static_cast<size_t>(members.rank);
  state_->memory = std::move(memory);
  state_->mine = Header::of(call);
  state_->theirs.resize(size);
  state_->described.resize(size);
  state_->joined.resize(size);
  state_->described[own] = state_->joined[own] = true;
  state_->theirs[own] = state_->mine;
}

Transfer::~Transfer() {
  if (!state_->requests.empty()) members_.world->keep(std::shared_ptr<State>(std::move(state_)));
}

void Transfer::open() {
  const int others = static_cast<int>(members_.world_ranks.size()) - 1;
  const auto nothing = [](int) { return Piece(); };
  open(std::bit_width(static_cast<unsigned>(others)), nothing, nothing);
}

// Exchanges descriptions with all peers, or with the peers at the first `peers` of the distances 1, 2, 4, ….
void Transfer::open(int peers, const PieceOf& send_piece, const PieceOf& receive_piece) {
  const int size = static_cast<int>(members_.world_ranks.size());
  state_->opened = true;
  for (int i = 0; i < peers; ++i) {
    const int distance = peers == size - 1 ? i + 1 : 1 << i;
    describe(distance, 0, send_piece(peer_at(distance)), receive_piece(peer_at(-distance)));
  }
}

void Transfer::open_in_rounds(const PieceOf& send_piece, const PieceOf& receive_piece) {
  state_->opened = true;
  for (int round = 0; 1 << round < std::ssize(members_.world_ranks); ++round) {
    describe(1 << round, round, send_piece(round), receive_piece(round));
    wait(kHeaderTag, round);
  }
}

int Transfer::peer_at(int distance) const {
  const int size = static_cast<int>(members_.world_ranks.size());
  return (members_.rank + distance + size) % size;
}

// Sends the description to the member at `distance` and receives one from the member at −distance. A member that makes
// another call may send data behind its description, so each receive has room for kFew bytes of data.
void Transfer::describe(int distance, int64_t row, const Piece& piece, const Piece& behind) {
  constexpr int64_t kRoom = sizeof(Header) + kFew;
  receive(peer_at(-distance), {state_->allocate(kRoom), kRoom}, kHeaderTag, row);
  state_->queues[kHeaderTag][false].messages.back().behind = behind;
  const int64_t bytes = static_cast<int64_t>(sizeof(Header)) + piece.bytes;
  const Piece message{state_->allocate(bytes), bytes};
  std::memcpy(message.data, &state_->mine, sizeof(Header));
  std::copy_n(piece.data, piece.bytes, message.data + sizeof(Header));
  send(peer_at(distance), message, kHeaderTag, row);
}

void Transfer::queue(int tag, int64_t row, const PieceOf& send_piece, const PieceOf& receive_piece) {
  const int size = static_cast<int>(members_.world_ranks.size());
  if (!state_->opened && call_.bytes <= kFew) {
    state_->with_first_row = true;
    return open(size - 1, send_piece, receive_piece);
  }
  if (!state_->opened) open();
  for (int distance = 1; distance < size; ++distance) {
    const int to = peer_at(distance), from = peer_at(-distance);
    receive(from, receive_piece(from), tag, row);
    send(to, send_piece(to), tag, row);
  }
}

void Transfer::send(int peer, Piece data, int tag, int64_t row) { queue(peer, data, tag, row, true); }

void Transfer::receive(int peer, Piece data, int tag, int64_t row) { queue(peer, data, tag, row, false); }

void Transfer::queue(int peer, Piece data, int tag, int64_t row, bool sends) {
  for (int64_t at = 0; at < data.bytes; at += members_.piece)
    state_->queues[tag][sends].messages.push_back(
        {peer, {data.data + at, std::min(members_.piece, data.bytes - at)}, tag, row, sends});
}

// Starts queued messages. Full pieces use synchronous sends, which complete when the receiver has posted its end, so
// that a sender cannot run ahead by more than the messages in flight. A tag has at most one shorter message for each
// peer, so shorter messages need no such limit.
void Transfer::post() {
  for (auto& directions : state_->queues)
    for (Queue& queue : directions) {
      for (; queue.posted < queue.messages.size() && queue.in_flight < kInFlight; ++queue.posted, ++queue.in_flight) {
        Message& message = queue.messages[queue.posted];
        if (message.tag != kHeaderTag && message.row >= queue.messages.front().row + depth_) break;
        MPI_Request request = MPI_REQUEST_NULL;
        const auto [data, bytes] = message.piece;
        const int count = static_cast<int>(bytes);
        const auto start = bytes == members_.piece ? MPI_Issend : MPI_Isend;
        if (message.sends)
          check_mpi(start(data, count, MPI_BYTE, message.peer, message.tag, members_.comm, &request), "MPI_Isend");
        else
          check_mpi(MPI_Irecv(data, count, MPI_BYTE, message.peer, message.tag, members_.comm, &request), "MPI_Irecv");
        state_->requests.push_back(request);
        state_->in_flight.push_back(&message);
      }
    }
}

bool Transfer::done(int tag, int64_t row) const {
  const auto is_done = [](const Queue& queue, int64_t last) {
    return queue.messages.empty() || queue.messages.front().row > last;
  };
  return std::ranges::all_of(state_->queues[tag], [&](const Queue& queue) { return is_done(queue, row); }) &&
         (!state_->with_first_row || is_done(state_->queues[kHeaderTag][false], 0));
}

void Transfer::wait(int tag, int64_t row) {
  wait_until([&] { return done(tag, row); });
}

void Transfer::finish() {
  wait_until([&] { return state_->requests.empty(); });
}

template <class F>
void Transfer::wait_until(F&& done) {
  const auto yielding = call_.bytes <= kShort ? kYieldingShort : kYielding;
  if (!state_->opened) open();
  post();
  for (auto last = Clock::now(); !done();) {
    if (advance()) {
      if (!state_->error.empty()) explain();
      last = Clock::now();
    } else if (const auto idle = Clock::now() - last; idle < yielding) {
      std::this_thread::yield();
    } else {
      check_stalled(last);
      const bool all_joined = std::find(state_->joined.begin(), state_->joined.end(), false) == state_->joined.end();
      std::this_thread::sleep_for(all_joined ? kSleep : std::clamp<Clock::duration>(idle / 16, kSleep, kLongSleep));
    }
  }
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
  for (int i = 0; i < done; ++i)
    complete(*s.in_flight[static_cast<size_t>(s.indices[static_cast<size_t>(i)])],
             result == MPI_ERR_IN_STATUS ? s.statuses[static_cast<size_t>(i)].MPI_ERROR : MPI_SUCCESS);
  std::erase_if(s.in_flight, [](const Message* message) { return message->done; });
  std::erase(s.requests, MPI_REQUEST_NULL);
  for (auto& directions : s.queues)
    for (Queue& queue : directions)
      for (; !queue.messages.empty() && queue.messages.front().done; --queue.posted) queue.messages.pop_front();
  post();
  return true;
}

void Transfer::complete(Message& message, int error) {
  State& s = *state_;
  const auto peer = static_cast<size_t>(message.peer);
  message.done = true;
  --s.queues[message.tag][message.sends].in_flight;
  if (error != MPI_SUCCESS && error != MPI_ERR_PENDING) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(error, text, &length);
    s.error = detail::concat("a message to or from rank ", members_.world_ranks[peer], " failed: ", text);
    return;
  }
  if (message.sends) return;
  s.joined[peer] = true;
  if (message.tag != kHeaderTag) return;
  s.described[peer] = true;
  std::memcpy(&s.theirs[peer], message.piece.data, sizeof(Header));
  if (s.theirs[peer] == s.mine)
    std::copy_n(message.piece.data + sizeof(Header), message.behind.bytes, message.behind.data);
  else if (s.error.empty()) s.error = "ranks disagree";
}

// Called while nothing arrives: throws if a rank has failed or ended, or after the timeout. `last`: time of the last
// completed message.
void Transfer::check_stalled(Clock::time_point last) const {
  members_.world->check_peers(members_.world_ranks[static_cast<size_t>(members_.rank)], call_.phase);
  const ControlChannel& control = members_.world->control;
  const auto now = Clock::now();
  for (const Message* message : state_->in_flight) {
    const int rank = members_.world_ranks[static_cast<size_t>(message->peer)];
    const auto left = control.finished_at(rank);
    if (left && now - std::max(*left, last) > kGrace)
      give_up(detail::concat("rank ", rank, " has ended and will not join"));
  }
  // In a later round, the peer may itself wait for an absent member. The member that waits for the absent one in the
  // first round reports it, so the others wait longer.
  const auto in_later_round = [](const Message* message) { return message->tag == kHeaderTag && message->row > 0; };
  const auto grace = std::ranges::any_of(state_->in_flight, in_later_round) ? kGrace : kGrace * 0;
  if (now - std::max(last, control.last_busy()) <= members_.world->timeout + grace) return;
  std::set<int> absent, cut_off;  // world ranks with messages in flight
  for (const Message* message : state_->in_flight)
    (state_->joined[static_cast<size_t>(message->peer)] ? cut_off : absent)
        .insert(members_.world_ranks[static_cast<size_t>(message->peer)]);
  const auto list = [](const std::set<int>& ranks) { return rank_list({ranks.begin(), ranks.end()}); };
  const std::string within =
      detail::concat(" within ", static_cast<double>(members_.world->timeout.count()) / 1000, " s");
  if (!absent.empty()) give_up("timeout: " + list(absent) + " did not join" + within);
  give_up("timeout: " + list(cut_off) + " joined, but " + (cut_off.size() == 1 ? "its" : "their") +
          " data did not arrive" + within);
}

// Throws for a mismatch of calls, or for a failed message, which a mismatch may have caused. Waits up to kGrace for
// more headers, and for a notice that another rank has found a mismatch.
void Transfer::explain() {
  State& s = *state_;
  size_t base = 0, other = 0;
  const auto mismatch = [&] {
    base = s.described[0] ? 0 : static_cast<size_t>(members_.rank);
    for (other = 0; other < s.theirs.size(); ++other)
      if (s.described[other] && !(s.theirs[other] == s.theirs[base])) return true;
    return false;
  };
  const auto start = Clock::now();
  while (Clock::now() - start < kGrace && (!s.queues[kHeaderTag][false].messages.empty() || !mismatch()))
    if (!advance()) {
      members_.world->check_peers(members_.world_ranks[static_cast<size_t>(members_.rank)], call_.phase);
      std::this_thread::sleep_for(kSleep);
    }
  if (!mismatch()) give_up(s.error);
  give_up(describe_mismatch(members_.world_ranks[base], s.theirs[base].call(), members_.world_ranks[other],
                            s.theirs[other].call()));
}

void Transfer::give_up(const std::string& reason) const {
  godwit::fail(detail::concat("rank ", members_.world_ranks[static_cast<size_t>(members_.rank)], ": phase '",
                              call_.phase, "': "),
               reason);
}

}  // namespace godwit
