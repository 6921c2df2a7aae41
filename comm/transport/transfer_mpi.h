// Transfer: sends, receives and completes the messages of one collective.
#pragma once
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/collective_call.h"
#include "comm/transport/control_channel_mpi.h"

namespace godwit {

// State shared by the groups of one run_mpi().
struct MpiWorld {
  MpiWorld(MPI_Comm comm, std::chrono::milliseconds patience) : control(comm), timeout(patience) {}

  ControlChannel control;
  const std::chrono::milliseconds timeout;
  std::vector<MPI_Comm> comms;  // communicators of the groups

  // Throws if another rank has failed, or has ended without a notice. The first rank that detects an ended process also
  // prints the error, because the launcher may end all processes within a second. `rank`: this rank.
  void check_peers(int rank, std::string_view phase);
  // Keeps message buffers alive after a failure, because MPI may still read or write them. Thread-safe.
  void keep(std::shared_ptr<void> memory);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<void>> kept_;
};

// The members of one group.
struct MpiMembers {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;                  // rank in the group
  std::vector<int> world_ranks;  // world ranks of the members
  std::shared_ptr<MpiWorld> world;
  int64_t piece = kPiece;  // maximum bytes of a message; larger than a description with kFew bytes of data
  int64_t row = kPiece;    // maximum bytes of a row to one member; a multiple of `piece`

  // With its header, a message of kPiece bytes fits the eager limit of Open MPI over TCP, 64 KiB. A longer message
  // waits for a reply of the receiver, and the reply waits behind the data that the receiver sends on that connection.
  // Within a host, larger pieces are faster.
  static constexpr int64_t kPiece = 63 << 10, kPieceOnOneHost = 256 << 10;
  // In a group with more members on several hosts, a row has up to kPiecesOfRow messages for each of them. This reduces
  // the number of members that send to one host at the same time.
  static constexpr int kFewMembers = 4;
  static constexpr int64_t kPiecesOfRow = 4;
};

// The bytes of a message.
struct Piece {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};
using PieceOf = std::function<Piece(int peer)>;

// The data is queued in rows: a row is at most MpiMembers::row bytes to and from each other member. Few messages are in
// flight at a time. However, MPI opens a connection to every receiver of a row, and a call of at most kFew bytes
// allocates memory for a message from each member. Only one thread may use a Transfer.
class Transfer {
 public:
  static constexpr int64_t kShort = 64 << 10;  // largest size of a call that latency dominates, in bytes
  static constexpr int64_t kFew = 16 << 10;    // largest call that sends its description with its data, in bytes
  static constexpr int64_t kInFlight = 12;     // messages of a tag and direction that are posted together
  // Rows in flight for each tag and direction, if a row has a message for every other rank.
  static constexpr int64_t depth(int ranks) { return std::max<int64_t>(1 + kInFlight / std::max(ranks - 1, 1), 2); }

  // `memory` holds the buffers of send() and receive(). depth: rows in flight for each tag and direction.
  Transfer(const MpiMembers& members, const CollectiveCall& call, std::vector<Tensor> memory, int64_t depth);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Exchanges the description of the call (its arguments, which the members compare) with the members at distances 1,
  // 2, 4, … If the caller has not called open(), wait() and finish() call it.
  void open();
  // Like open(), in rounds. Round i, with the members at distance 2^i, begins when round i−1 has ended. After the last
  // round, all members have joined the call. The data of send(i), at most kFew bytes, is sent with the description and
  // received into receive(i).
  void open_in_rounds(const PieceOf& send, const PieceOf& receive);
  // Queues a row: at most MpiMembers::row bytes to and from each other member, the nearest first. All members must
  // queue the rows of a tag (1 or 2) in ascending order and with the same sizes. The first row of a call of at most
  // kFew bytes is sent with the description of the call.
  void queue(int tag, int64_t row, const PieceOf& send, const PieceOf& receive);
  // Queues data of a row in messages of at most MpiMembers::piece bytes.
  void send(int peer, Piece data, int tag, int64_t row);
  void receive(int peer, Piece data, int tag, int64_t row);  // counterpart of a send(), which may name another row

  // Blocks until the messages of the tag have completed up to this row, in both directions. Polls, and sleeps between
  // polls. Throws if members call different collectives, if a member failed or left, or if nothing arrives before the
  // timeout.
  void wait(int tag, int64_t row);
  bool done(int tag, int64_t row) const;  // whether wait() would return immediately
  void finish();  // waits for all messages, including the descriptions of the call

 private:
  struct Header;
  struct Message;
  struct Queue;
  struct State;
  using Clock = std::chrono::steady_clock;

  void open(int peers, const PieceOf& send, const PieceOf& receive);
  int peer_at(int distance) const;
  void queue(int peer, Piece data, int tag, int64_t row, bool sends);
  void describe(int distance, int64_t row, const Piece& send, const Piece& receive);
  template <class F>
  void wait_until(F&& done);
  void post();     // starts queued messages
  bool advance();  // polls once; true if a message has completed
  void complete(Message& message, int error);
  void check_stalled(Clock::time_point last) const;
  [[noreturn]] void explain();
  [[noreturn]] void give_up(const std::string& reason) const;

  const MpiMembers& members_;
  CollectiveCall call_;
  int64_t depth_;
  std::unique_ptr<State> state_;
};

}  // namespace godwit
