// One rank of the MPI transport tests, started by mpirun. Without arguments, it runs the collectives tests on all
// topologies of its world. `mpi_ranks fail NAME` fails in the named way and exits like Godwit's programs.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "comm/transport/control_channel_mpi.h"
#include "comm/transport/group_mpi.h"
#include "comm/transport/launcher.h"
#include "comm/transport/mpi.h"
#include "comm/transport/session_mpi.h"
#include "tests/comm/ranks.h"
#include "tests/comm/suspension.h"

namespace godwit::test {

std::vector<Topology> topologies() {
  const int world = launcher()->world;
  std::vector<Topology> all;
  for (int nodes = 1; nodes <= world; ++nodes)
    if (world % nodes == 0) all.push_back({nodes, world / nodes});
  return all;
}

void run_ranks(const Topology& topology, const std::function<void(Communicator&)>& body, const Placement& placement) {
  run_mpi(topology, body, {.timeout = std::chrono::seconds(120), .placement = placement});
}

}  // namespace godwit::test

static std::atomic<int> sends{0};
static std::mutex receivers_mutex;
static std::map<MPI_Comm, std::set<int>> receivers;  // receivers of messages, by communicator

static void count_send(MPI_Comm comm, int peer) {
  ++sends;
  const std::lock_guard lock(receivers_mutex);
  receivers[comm].insert(peer);
}

// Replacements of two MPI functions. They count messages and record the receivers. MPI_Isend fails once if send_fails
// is set.
static std::atomic<bool> send_fails{false};
extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  if (send_fails.exchange(false)) return MPI_ERR_OTHER;
  count_send(comm, peer);
  return PMPI_Isend(data, count, type, peer, tag, comm, request);
}
extern "C" int MPI_Issend(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                          MPI_Request* request) {
  count_send(comm, peer);
  return PMPI_Issend(data, count, type, peer, tag, comm, request);
}

// Fails once if receive_fails is set.
static std::atomic<bool> receive_fails{false};
extern "C" int MPI_Irecv(void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  return receive_fails.exchange(false) ? MPI_ERR_OTHER : PMPI_Irecv(data, count, type, peer, tag, comm, request);
}

// Fails if wait_fails is set. Only the end of a run calls it.
static std::atomic<bool> wait_fails{false};
extern "C" int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  return wait_fails ? MPI_ERR_OTHER : PMPI_Wait(request, status);
}

// If abort_is_slow is set, the launcher ends the other ranks after two seconds.
static std::atomic<bool> abort_is_slow{false};
extern "C" int MPI_Abort(MPI_Comm comm, int code) {
  if (abort_is_slow) std::this_thread::sleep_for(std::chrono::seconds(2));
  return PMPI_Abort(comm, code);
}

namespace {

using namespace godwit;

void reduce_for_ever(Communicator& comm) {
  const Tensor x = Tensor::zeros({70000});
  for (;;) comm.world->all_reduce(x, Reduce::sum, "gradients");
}

const std::map<std::string, std::function<void(Communicator&)>> kFailures = {
    {"throw",
     [](Communicator& comm) {
       comm.world->barrier("start");
       if (comm.rank == 2) fail("loader: corrupt file");
       reduce_for_ever(comm);
     }},
    {"reporter_stops",
     [](Communicator& comm) {
       if (comm.rank == 2) fail("loader: corrupt file");
       reduce_for_ever(comm);
     }},
    // Not a failure: all processes are suspended for longer than the timeout, while rank 0 waits.
    {"suspended",
     [](Communicator& comm) {
       test::suspend_soon();
       if (comm.rank == 1) test::wait_for_suspension();
       comm.world->barrier("later");
     }},
    {"slow_abort",
     [](Communicator& comm) {
       abort_is_slow = true;
       if (comm.rank == 2) fail("loader: corrupt file");
       reduce_for_ever(comm);
     }},
    {"no_notice",
     [](Communicator& comm) {
       comm.world->barrier("start");
       send_fails = comm.rank == 1;
       if (comm.rank == 1) fail("loader: corrupt file");
       reduce_for_ever(comm);
     }},
    {"lost_after_error",
     [](Communicator& comm) {
       if (comm.rank == 0) fail("loader: corrupt file");
       std::this_thread::sleep_for(std::chrono::milliseconds(comm.rank == 1 ? 300 : 20'000));
       ::_exit(0);
     }},
    {"all_throw", [](Communicator&) { fail("data folder x: not found"); }},
    {"two_throw",
     [](Communicator& comm) {
       if (comm.rank == 1 || comm.rank == 2) fail("disk ", comm.rank, " is full");
       std::this_thread::sleep_for(std::chrono::milliseconds(200));
       comm.world->barrier("later");
     }},
    {"computing",
     [](Communicator& comm) {
       if (comm.rank == 1) fail("loader: corrupt file");
       std::this_thread::sleep_for(std::chrono::seconds(60));
     }},
    {"other_type",
     [](Communicator& comm) {
       if (comm.rank == 1) throw std::out_of_range("index 7");
       reduce_for_ever(comm);
     }},
    {"abort",
     [](Communicator& comm) {
       if (comm.rank == 1) comm.intra->control()->abort("interrupted by the user");
       else reduce_for_ever(comm);
     }},
    {"size",
     [](Communicator& comm) {
       comm.world->all_reduce(Tensor::zeros({60000 + 1000 * (comm.rank == 2)}), Reduce::sum, "b");
     }},
    {"small_size",
     [](Communicator& comm) {
       comm.world->all_reduce(Tensor::zeros({comm.rank == 2 ? 1000 : 60000}), Reduce::sum, "b");
     }},
    {"collective",
     [](Communicator& comm) {
       const Tensor x = Tensor::zeros({6}), y({6}), z({18});
       if (comm.rank == 1) comm.world->all_to_all(x, y, "a");
       else comm.world->all_gather(x, z, "a");
     }},
    {"phase", [](Communicator& comm) { comm.world->barrier(comm.rank == 2 ? "c" : "d"); }},
    {"ends_early",
     [](Communicator& comm) {
       comm.world->barrier("start");
       if (comm.rank != 2) comm.world->all_reduce(Tensor::zeros({4}), Reduce::sum, "gradients");
     }},
    {"killed",
     [](Communicator& comm) {
       if (comm.rank == 1) kill(getpid(), SIGKILL);
       reduce_for_ever(comm);
     }},
    {"stopped",
     [](Communicator& comm) {
       comm.world->barrier("start");
       if (comm.rank == 1) kill(getpid(), SIGSTOP);
       reduce_for_ever(comm);
     }},
    {"stopped_first",
     [](Communicator& comm) {
       comm.world->barrier("start");
       if (comm.rank == 0) kill(getpid(), SIGSTOP);
       reduce_for_ever(comm);
     }},
    {"stopped_before_barrier",
     [](Communicator& comm) {
       comm.world->all_reduce(Tensor::zeros({1}), Reduce::sum, "start");
       if (comm.rank == 1) kill(getpid(), SIGSTOP);
       comm.world->barrier("late");
     }},
    {"after_the_end", [](Communicator& comm) { wait_fails = comm.rank == 1; }},
    {"gather",
     [](Communicator& comm) {
       const Tensor x = Tensor::zeros({2}), all({2 * comm.world->size()});
       comm.world->all_gather(x, all, comm.rank == 2 ? "h" : "g");
     }},
    {"topologies", reduce_for_ever},
    {"alone", reduce_for_ever},
};

// A message is sent in pieces of 63 KiB.
TEST(MpiRanks, LargeMessagesArriveComplete) {
  if (launcher()->world != 2) return;
  const int64_t n = (int64_t{64} << 20) + 5;
  godwit::test::run_ranks({2, 1}, [&](Communicator& comm) {
    const Tensor x = Tensor::full({n}, comm.rank == 1 ? 7 : 0, DType::u8);
    x.data<uint8_t>()[n - 1] = comm.rank == 1 ? 9 : 0;
    comm.world->broadcast(x, 1, "large");
    EXPECT_EQ(std::count(x.data<uint8_t>(), x.data<uint8_t>() + n, 7), n - 1);
    EXPECT_EQ(x.item(n - 1), 9);
  });
}

TEST(MpiRanks, MessagesGrowWithTheLogarithmOfTheRanks) {
  const int world = launcher()->world;
  if (world <= 8) return;
  const int rounds = std::bit_width(static_cast<unsigned>(world - 1));
  godwit::test::run_ranks({world, 1}, [&](Communicator& comm) {
    const auto sent_by = [&](const std::function<void()>& call) {
      const int before = sends;
      call();
      return sends - before;
    };
    EXPECT_EQ(sent_by([&] { comm.world->barrier("few"); }), rounds);
  });
}

// Small calls, and large calls between nodes, use connections to the ranks at the distances 1, 2, 4 and 8 only.
// Messages of 20 KiB make the calls large.
TEST(MpiRanks, CallsOfManyRanksUseFewConnections) {
  const int world = launcher()->world;
  if (world < 16) return;
  godwit::test::run_ranks({world, 1}, [&](Communicator& comm) {
    MpiMembers members;
    members.rank = comm.rank;
    members.world = std::make_shared<MpiWorld>(MPI_COMM_WORLD, std::chrono::seconds(60));
    members.piece = members.row = 20 << 10;
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &members.comm), "MPI_Comm_dup");
    const MPI_Comm used = members.comm;
    std::vector<Link> links;
    for (int peer = 0; peer < world; ++peer) {
      members.world_ranks.push_back(peer);
      links.push_back(comm.topology.link(comm.rank, peer));
    }
    MpiGroup group(members, links, comm.stats, comm.world->control());
    const auto value = [](int rank, int64_t i) { return static_cast<float>((i * 7 + rank) % 1000) / 3; };
    for (const int64_t n : {int64_t{1}, int64_t{500}, 12 * world * int64_t{5120} + 77})
      for (const Reduce op : {Reduce::sum, Reduce::mean}) {
        const Tensor x({n});
        for (int64_t i = 0; i < n; ++i) x.data<float>()[i] = value(comm.rank, i);
        group.all_reduce(x, op, "sum");
        for (int64_t i = 0; i < n; i += 7) {
          float sum = 0;
          for (int rank = 0; rank < world; ++rank) sum += value(rank, i);
          ASSERT_EQ(x.item(i), op == Reduce::mean ? sum / static_cast<float>(world) : sum) << i;
        }
      }
    for (const int64_t part : {3, 500, 12000}) {
      const Tensor own({part}), all({part * world});
      for (int64_t i = 0; i < part; ++i) own.data<float>()[i] = value(comm.rank, i);
      group.all_gather(own, all, "gather");
      for (int64_t i = 0; i < part * world; i += 7)
        ASSERT_EQ(all.item(i), value(static_cast<int>(i / part), i % part)) << i;
    }
    const std::lock_guard lock(receivers_mutex);
    EXPECT_EQ(std::ssize(receivers[used]), std::bit_width(static_cast<unsigned>(world - 1)));
  });
}

// Under tools/netlab. The better of three runs is compared with the rate that netlab has measured.
TEST(MpiRanks, AnAllReduceFillsTheLine) {
  const char* mbit = std::getenv("NETLAB_MBIT");
  if (!mbit) return;
  godwit::test::run_ranks({launcher()->world, 1}, [&](Communicator& comm) {
    const Tensor x = Tensor::zeros({1 << 18});
    double least = 1e9;
    for (int run = 0; run < 3; ++run) {
      comm.world->barrier("line");
      const auto start = std::chrono::steady_clock::now();
      comm.world->all_reduce(x, Reduce::mean, "line");
      least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    const double ranks = comm.world->size(), bits = 2 * 8 * (ranks - 1) / ranks * static_cast<double>(x.bytes());
    EXPECT_GT(bits / least, 0.75e6 * std::atof(mbit)) << "bit/s; a link carries " << mbit << " Mbit/s";
  });
}

// A process that bypasses ControlChannel sends malformed control messages.
TEST(MpiRanks, MalformedControlMessagesAreFailuresOfTheirSender) {
  if (launcher()->world != 2) return;
  struct Message {
    int32_t kind, rank;
    int64_t steps = 0;
    char text[4000] = "";
  };
  constexpr int kBytes = 2016;
  Message endless{0, 1};
  std::memset(endless.text, 'x', sizeof(endless.text));
  struct Case {
    Message message;
    int bytes;
    std::string reason;
  };
  const std::string malformed = "it sent a malformed notice: ";
  const Case cases[] = {{{0, 1, 0, "disk full"}, kBytes, "disk full"},
                        {{0, 1}, 100, malformed + "100 bytes, expected 2016"},
                        {{0, 1}, 4000, malformed + "it is too long"},
                        {{0, 1'000'000}, kBytes, malformed + "it names rank 1000000 as its sender"},
                        {{1, -1}, kBytes, malformed + "it names rank -1 as its sender"},
                        {{3, 0}, kBytes, malformed + "it names rank 0 as its sender"},
                        {{6, 1}, kBytes, malformed + "its kind is 6"},
                        {endless, kBytes, malformed + "its text is not terminated"}};
  const int rank = MpiSession::instance().rank();
  for (const auto& [message, bytes, reason] : cases) {
    if (rank == 0) {
      ControlChannel control(MPI_COMM_WORLD);
      for (int i = 0; i < 10'000 && !control.failed_peer(); ++i) {
        control.poll();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_EQ(control.failures(), (std::map<int, std::string>{{1, reason}}));
      control.close();
    } else {
      MPI_Comm comm = MPI_COMM_NULL;
      MPI_Comm_dup(MPI_COMM_WORLD, &comm);
      MPI_Send(&message, bytes, MPI_BYTE, 0, 0, comm);
      MPI_Comm_free(&comm);
    }
  }
}

// The receive after the first notice fails, as in the thread of a heartbeat, which cannot report the error.
TEST(MpiRanks, NoticesArriveAfterAFailedReceive) {
  if (launcher()->world != 2) return;
  const int rank = MpiSession::instance().rank();
  ControlChannel control(MPI_COMM_WORLD);
  if (rank == 1) control.busy();
  control.finish();
  receive_fails = rank == 0;
  int errors = 0;
  for (int i = 0; i < 10'000 && !control.all_finished(); ++i, std::this_thread::sleep_for(std::chrono::milliseconds(1)))
    try {
      control.poll();
    } catch (const Error&) {
      ++errors;
    }
  EXPECT_EQ(errors, rank == 0 ? 1 : 0);
  EXPECT_TRUE(control.all_finished());
  EXPECT_EQ(control.failures(), (std::map<int, std::string>{}));
  MPI_Barrier(MPI_COMM_WORLD);
  control.close();
}

int run_failure(const std::string& name) {
  const int rank = launcher()->rank, world = launcher()->world;
  const Topology topology = name == "topologies" && rank == 1 ? Topology{1, world} : Topology{world, 1};
  const bool waits = name.starts_with("stopped") || name == "reporter_stops" || name == "slow_abort";
  const int timeout = name == "alone" ? 1 : name == "suspended" ? 2 : waits ? 5 : 60;
  try {
    run_mpi(topology, kFailures.at(name), {.timeout = std::chrono::seconds(timeout)});
    return 0;
  } catch (const PeerFailed&) {
  } catch (const std::exception& error) {
    if (name == "reporter_stops" && rank == 2) kill(getpid(), SIGSTOP);  // until mpirun wakes it in order to end it
    else std::fprintf(stderr, "mpi_ranks: %s\n", error.what());
  }
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc == 3 && argv[1] == std::string("fail")) return run_failure(argv[2]);
  return RUN_ALL_TESTS();
}
