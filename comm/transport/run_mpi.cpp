#include <algorithm>
#include <bit>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "comm/failure.h"
#include "comm/transport/group_mpi.h"
#include "comm/transport/group_nccl.h"
#include "comm/transport/launcher.h"
#include "comm/transport/mpi.h"
#include "comm/transport/session_mpi.h"
#include "comm/transport/startup_watchdog.h"
#include "comm/transport/visible_gpus.h"
#include "engine/context.h"
#include "engine/hash.h"

namespace godwit {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPoll{1};
constexpr std::chrono::seconds kSettle{2};     // after a failure, time for the other ranks to leave their collectives
// Time for the reporting rank to end all processes: a part of the timeout, at most kReporter.
constexpr std::chrono::seconds kReporter{10};
constexpr int kReporterPart = 6;
constexpr std::chrono::milliseconds kNextReporter{100};  // after this time, the next rank reports

Topology agree_on_topology(Topology given, const MpiSession& session) {
  const int own[2] = {given.nodes, given.workers_per_node};
  std::vector<int> all(2 * static_cast<size_t>(session.world()));
  check_mpi(MPI_Allgather(own, 2, MPI_INT, all.data(), 2, MPI_INT, MPI_COMM_WORLD), "MPI_Allgather");
  for (size_t rank = 1; rank < static_cast<size_t>(session.world()); ++rank)
    check(all[2 * rank] == all[0] && all[2 * rank + 1] == all[1],
          "the ranks were given different topologies (nodes × workers per node, 0: not given): rank 0 ", all[0], " × ",
          all[1], ", rank ", rank, " ", all[2 * rank], " × ", all[2 * rank + 1], "; use the same options on all ranks");
  const Topology topology = fit_topology(given, session.world());
  return topology.nodes > 0 ? topology : topology_of_hosts(session.hosts());
}

std::shared_ptr<Group> make_group(const std::shared_ptr<MpiWorld>& world, const Communicator& comm,
                                  std::shared_ptr<RunControl> control, std::vector<int> ranks, int color) {
  MpiMembers members;
  check_mpi(MPI_Comm_split(MPI_COMM_WORLD, color, comm.rank, &members.comm), "MPI_Comm_split");
  check_mpi(MPI_Comm_set_errhandler(members.comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  world->comms.push_back(members.comm);
  std::vector<Link> links;
  for (int peer : ranks) links.push_back(comm.topology.link(comm.rank, peer));
  members.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), comm.rank) - ranks.begin());
  members.world_ranks = std::move(ranks);
  members.world = world;
  const std::vector<std::string>& hosts = MpiSession::instance().hosts();
  const auto here = [&](int peer) { return hosts[static_cast<size_t>(peer)] == hosts[static_cast<size_t>(comm.rank)]; };
  if (std::ranges::all_of(members.world_ranks, here)) members.piece = members.row = MpiMembers::kPieceOnOneHost;
  else if (std::ssize(members.world_ranks) > MpiMembers::kFewMembers) members.row *= MpiMembers::kPiecesOfRow;
  return std::make_shared<MpiGroup>(std::move(members), std::move(links), comm.stats, std::move(control));
}

Communicator make_communicator(const std::shared_ptr<MpiWorld>& world, const Topology& topology, int rank) {
  Communicator comm{topology, rank, nullptr, nullptr, nullptr, nullptr, std::make_shared<CommStats>()};
  std::vector<int> everyone, node, column;
  for (int peer = 0; peer < topology.world(); ++peer) {
    everyone.push_back(peer);
    if (topology.node_of(peer) == comm.node()) node.push_back(peer);
    if (topology.local_rank(peer) == comm.local_rank()) column.push_back(peer);
  }
  const std::shared_ptr<RunControl> control = mpi_run_control(world, rank);
  comm.world = make_group(world, comm, control, everyone, 0);
  comm.compute = make_group(world, comm, control, everyone, 0);
  comm.intra = make_group(world, comm, control, node, comm.node());
  comm.inter = make_group(world, comm, control, column, comm.local_rank());
  return comm;
}

// Index of this rank among the ranks of its host, and the number of these ranks. If ranks see different GPUs
// (CUDA_VISIBLE_DEVICES), only ranks that see the same GPUs count.
std::pair<int, int> local_rank_and_count(const MpiSession& session, Group& group, const Placement& placement) {
  std::vector<std::string> machines = session.hosts();
  if (placement.device != "cpu") {
    Hash seen;
    seen.add(visible_gpus());
    const Tensor own = Tensor::of<int64_t>({std::bit_cast<int64_t>(seen.value())}, {1});
    const Tensor all({group.size()}, DType::i64);
    group.all_gather(own, all, "gpus/agree");
    for (size_t rank = 0; rank < machines.size(); ++rank)
      machines[rank].append(" ").append(std::to_string(all.data<int64_t>()[rank]));
  }
  const auto self = machines.begin() + session.rank();
  return {static_cast<int>(std::count(machines.begin(), self, *self)),
          static_cast<int>(std::count(machines.begin(), machines.end(), *self))};
}

// Collective: whether all ranks can communicate through NCCL. `here`: this rank can.
bool agree_on_nccl(Group& group, bool here) {
  const Tensor own = Tensor({1}, DType::u8, kCpu), all = Tensor({group.size()}, DType::u8, kCpu);
  own.fill(here);
  group.all_gather(own, all, "nccl/agree");
  const std::vector<uint8_t> can = all.to_vector<uint8_t>();
  return std::find(can.begin(), can.end(), 0) == can.end();
}

void describe_launch(const MpiSession& session, const Topology& topology,
                     const std::function<void(const std::string&)>& note) {
  if (!note || session.rank() != 0) return;
  const std::set<std::string> hosts(session.hosts().begin(), session.hosts().end());
  note(detail::concat(mpi_library(), ": ", session.world(), session.world() == 1 ? " rank on " : " ranks on ",
                      hosts.size(), hosts.size() == 1 ? " host" : " hosts"));
  const std::string spanning = spanning_node(topology, session.hosts());
  if (!spanning.empty())
    note("warning: " + spanning +
         "; traffic within this node counts as intra-node (mpirun --map-by slot numbers the ranks host by host)");
  if (session.bound())
    note(
        "warning: the ranks of this host may use only some of its cores; if mpirun binds them, --bind-to none allows "
        "all");
}

// Polls for notices until done(). Returns false if `limit` passes first without a busy notice of another rank.
template <class F>
bool wait_for_notices(ControlChannel& control, Clock::duration limit, F&& done) {
  for (const auto start = Clock::now(); !done();) {
    if (Clock::now() - std::max(start, control.last_busy()) > limit) return false;
    std::this_thread::sleep_for(kPoll);
    control.poll();
  }
  return true;
}

std::vector<int> unfinished_ranks(const ControlChannel& control) {
  std::vector<int> ranks;
  for (int rank = 0; rank < MpiSession::instance().world(); ++rank)
    if (!control.finished_at(rank)) ranks.push_back(rank);
  return ranks;
}

void end_succeeded(MpiWorld& world) {
  wait_for_notices(world.control, world.timeout, [&] {
    return world.control.all_finished() || world.control.failed_peer() || world.control.lost_peer();
  });
  if (world.control.failed_peer()) return;
  world.check_peers(MpiSession::instance().rank(), "end");
  const std::vector<int> missing = unfinished_ranks(world.control);
  if (!missing.empty())
    fail("timeout: ", rank_list(missing), " did not end within ", static_cast<double>(world.timeout.count()) / 1000,
         " s after this one");
  world.control.close();
  for (MPI_Comm& comm : world.comms) check_mpi(MPI_Comm_free(&comm), "MPI_Comm_free");
}

// " on a", or " on a and b"; empty if all ranks share a host.
std::string on_hosts(const std::vector<int>& ranks) {
  const std::vector<std::string>& hosts = MpiSession::instance().hosts();
  if (std::set<std::string>(hosts.begin(), hosts.end()).size() == 1) return "";
  std::string text;
  std::set<std::string> told;
  for (const int rank : ranks)
    if (const std::string& host = hosts[static_cast<size_t>(rank)]; told.insert(host).second)
      text.append(text.empty() ? " on " : " and ").append(host);
  return text;
}

std::string combined(const std::map<int, std::string>& failures) {
  std::string text;
  std::set<std::string> told;
  for (const auto& [by, reason] : failures) {
    auto [rank, bare] = split_rank(by, reason);
    if (rank >= MpiSession::instance().world()) rank = by, bare = reason;  // not a rank of this run
    if (told.insert(bare).second)
      text.append(detail::concat(text.empty() ? "" : "\n", "rank ", rank, on_hosts({rank}), ": ", bare));
  }
  return text;
}

void announce_failure(ControlChannel& control, const std::string& reason) {
  control.poll();
  if (!control.failed_peer()) control.fail(reason);
  control.finish();
}

// After a failure: throws an Error with the errors of all ranks. One rank throws it first; its process prints it and
// ends the others. Throws PeerFailed if another rank has printed the errors.
[[noreturn]] void end_failed(MpiWorld& world, const std::exception_ptr& error, int rank) {
  ControlChannel& control = world.control;
  wait_for_notices(control, kSettle, [&] { return control.all_finished(); });
  // The reporter ends this process, unless it is stopped, or is of another build and expects this rank to report.
  Clock::duration patience{0};
  if (control.reporter() != rank)
    patience = std::min<Clock::duration>(kReporter, world.timeout / kReporterPart) + kNextReporter * rank;
  if (wait_for_notices(control, patience, [&] { return control.reported(); }))
    throw PeerFailed("another rank has printed the errors", __FILE__, __LINE__);
  const std::map<int, std::string> failures = control.failures();
  const std::string text = combined(failures);
  const std::vector<int> silent = unfinished_ranks(control);
  // A rank that times out may wait for a blocked rank, so the message names all ranks that do not answer.
  if (!silent.empty() && text.find("timeout: ") != std::string::npos)
    fail(text, "; ", rank_list(silent), on_hosts(silent), silent.size() == 1 ? " does" : " do", " not answer");
  if (error && MpiSession::instance().world() == 1) std::rethrow_exception(error);
  if (error && failures.size() == 1 && failures.contains(rank) && on_hosts({rank}).empty()) rethrow_from(rank, error);
  fail(text);
}

}  // namespace

bool mpi_built() { return true; }

std::string mpi_library() {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length);
  const std::string text(version, static_cast<size_t>(length));
  return text.substr(0, text.find_first_of(",\n"));
}

void run_mpi(Topology given, const std::function<void(Communicator&)>& body, const MpiOptions& options) {
  check(options.threads_per_rank >= 0, "run_mpi: threads_per_rank is ", options.threads_per_rank,
        "; expected a number of threads, or 0");
  check(options.timeout.count() > 0 && options.timeout <= std::chrono::years(10), "run_mpi: the timeout is ",
        options.timeout.count(), " ms; expected 1 ms to 10 years");
  const std::optional<Launcher> launched = launcher();
  std::optional<StartupWatchdog> watch(std::in_place, launched ? launched->rank : 0, options.timeout);
  MpiSession& session = MpiSession::instance();
  check(!session.failed(), "run_mpi: an earlier run failed; exit this process and start a new one");
  const int rank = session.rank();
  auto world = std::make_shared<MpiWorld>(MPI_COMM_WORLD, options.timeout);
  std::exception_ptr error;
  // Whether this rank reports only its own error: the others do not wait for notices, or it cannot send one.
  bool alone = false;
  try {
    const Topology topology = agree_on_topology(given, session);
    const int threads = options.threads_per_rank ? options.threads_per_rank : session.threads_per_rank();
    const ContextGuard guard(Context{rank, threads, true, std::make_shared<Pool>()});
    Communicator comm = make_communicator(world, topology, rank);
    watch.reset();
    const auto [local_rank, local_ranks] = local_rank_and_count(session, *comm.compute, options.placement);
    const Device device = device_of(options.placement, local_rank, local_ranks);
    const ContextGuard placed(context_on(device));
    const bool nccl = device.is_cuda() && topology.world() > 1 &&
                      agree_on_nccl(*comm.compute, exchanges_by_nccl(options.placement, local_ranks));
    Communicator groups = nccl ? with_nccl(comm, options.timeout) : comm;  // destroyed before its stream
    describe_launch(session, topology, options.note);
    body(groups);
    world->control.finish();
    if (world->control.failures().empty()) end_succeeded(*world);
    session.set_phase("");
    if (world->control.failures().empty()) return;
  } catch (...) {
    error = std::current_exception();
    watch.reset();
    alone = world->control.all_finished() && world->control.failures().empty();
    try {
      if (!alone) announce_failure(world->control, text_of(error));
    } catch (const Error&) {
      alone = true;
    }
  }
  session.fail([world] { world->control.report(); });
  session.set_phase("");
  if (alone) fail(combined({{rank, text_of(error)}}));
  end_failed(*world, error, rank);
}

}  // namespace godwit
