// Calls return ncclInProgress, and the work enters the stream only when ncclCommGetAsyncError() is polled. A collective
// waits at the head of its stream until the matching collectives of all ranks do so. A collective fails if the ranks
// call different collectives or share a GPU. Sums run in rank order.
#include "nccl.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"
#include "races.h"
#include "streams.h"

namespace {

using emulated::Clock;

enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast, send, receive };
struct Call {
  Kind kind;
  const void* in;
  void* out;
  size_t count;  // elements: of `in` for all_gather, of `out` for reduce_scatter
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;  // or root
};
using Calls = std::vector<Call>;  // calls of one group

// The n-th calls of all ranks.
struct Collective {
  std::vector<Calls> of_ranks;
  std::vector<bool> submitted, arrived, aborted;  // [rank]
  bool done = false;
  std::shared_ptr<Clock> meeting = std::make_shared<Clock>();
};

struct World {
  std::vector<int> devices;  // [rank], or -1: not connected
  std::vector<std::shared_ptr<Collective>> collectives;
  ncclResult_t error = ncclSuccess;
  std::string text;
};

std::mutex mutex;  // protects all worlds and communicators
std::map<std::string, std::shared_ptr<World>> worlds;

size_t bytes_of(ncclDataType_t type) { return type == ncclUint8 ? 1 : type == ncclFloat64 ? 8 : 4; }

std::shared_ptr<Collective> collective(World& world, size_t number) {
  while (world.collectives.size() <= number) {
    auto made = std::make_shared<Collective>();
    made->of_ranks.resize(world.devices.size());
    for (auto* const flags : {&made->submitted, &made->arrived, &made->aborted}) flags->resize(world.devices.size());
    world.collectives.push_back(std::move(made));
  }
  return world.collectives[number];
}

ncclResult_t fail(World& world, ncclResult_t error, std::string text) {
  world.error = error;
  world.text = std::move(text);
  return error;
}

bool alike(const Calls& a, const Calls& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Call& x, const Call& y) {
    const bool p2p = x.kind == Kind::send || x.kind == Kind::receive;
    return p2p || (x.kind == y.kind && x.count == y.count && x.type == y.type && x.op == y.op && x.peer == y.peer);
  });
}

template <class T>
void reduce(const std::vector<const Call*>& calls, std::vector<T>& result) {
  const size_t ranks = calls.size();
  for (size_t i = 0; i < result.size(); ++i) {
    for (size_t r = 0; r < ranks; ++r) {
      const T value = static_cast<const T*>(calls[r]->in)[i];
      result[i] = r == 0 ? value : result[i] + value;
    }
    if (calls[0]->op == ncclAvg) result[i] = static_cast<T>(result[i] / static_cast<T>(ranks));
  }
}

// Values of the whole result of a reduction.
std::vector<std::byte> reduced(const std::vector<const Call*>& calls, size_t count) {
  std::vector<std::byte> bytes(count * bytes_of(calls[0]->type));
  const auto with = [&]<class T>(T) {
    std::vector<T> result(count);
    reduce<T>(calls, result);
    std::memcpy(bytes.data(), result.data(), bytes.size());
  };
  switch (calls[0]->type) {
    case ncclFloat32:
      with(float{});
      break;
    case ncclFloat64:
      with(double{});
      break;
    case ncclUint8:
      with(uint8_t{});
      break;
  }
  return bytes;
}

void put(void* to, const void* from, size_t bytes) {
  emulated::note_write(to, bytes);
  std::memcpy(to, from, bytes);
}

// One call of each rank.
void run_calls(const std::vector<const Call*>& calls) {
  const Call& first = *calls[0];
  const size_t ranks = calls.size(), part = first.count * bytes_of(first.type);
  std::vector<std::byte> all;
  switch (first.kind) {
    case Kind::all_reduce:
    case Kind::reduce_scatter: {
      const size_t parts = first.kind == Kind::all_reduce ? 1 : ranks;
      for (const Call* const call : calls) emulated::note_read(call->in, parts * part);
      all = reduced(calls, parts * first.count);
      for (size_t r = 0; r < ranks; ++r) put(calls[r]->out, all.data() + (parts == 1 ? 0 : r * part), part);
      break;
    }
    case Kind::all_gather:
      for (const Call* const call : calls) {
        emulated::note_read(call->in, part);
        const auto* const begin = static_cast<const std::byte*>(call->in);
        all.insert(all.end(), begin, begin + part);
      }
      for (const Call* const call : calls) put(call->out, all.data(), all.size());
      break;
    case Kind::broadcast: {
      const void* const from = calls[static_cast<size_t>(first.peer)]->in;
      emulated::note_read(from, part);
      all.assign(static_cast<const std::byte*>(from), static_cast<const std::byte*>(from) + part);
      for (const Call* const call : calls) put(call->out, all.data(), part);
      break;
    }
    case Kind::send:
    case Kind::receive:
      break;  // run_messages()
  }
}

// The n-th message that `to` receives from `from` is the n-th one that `from` sends to `to`.
void run_messages(const std::vector<Calls>& of_ranks) {
  const auto nth = [&](size_t rank, Kind kind, size_t peer, size_t n) -> const Call* {
    for (const Call& call : of_ranks[rank])
      if (call.kind == kind && call.peer == static_cast<int>(peer) && n-- == 0) return &call;
    return nullptr;
  };
  struct Message {
    void* to;
    std::vector<std::byte> values;
  };
  std::vector<Message> messages;
  for (size_t to = 0; to < of_ranks.size(); ++to)
    for (size_t from = 0; from < of_ranks.size(); ++from)
      for (size_t n = 0;; ++n) {
        const Call *const sent = nth(from, Kind::send, to, n), *const received = nth(to, Kind::receive, from, n);
        if (!sent && !received) break;
        if (!sent || !received || sent->count != received->count || sent->type != received->type)
          emulated::stop("NCCL: a send or a receive has no matching call");
        const size_t bytes = sent->count * bytes_of(sent->type);
        emulated::note_read(sent->in, bytes);
        const auto* const begin = static_cast<const std::byte*>(sent->in);
        messages.push_back({received->out, {begin, begin + bytes}});
      }
  for (const Message& message : messages) put(message.to, message.values.data(), message.values.size());
}

void run(const Collective& all) {
  run_messages(all.of_ranks);
  for (size_t i = 0; i < all.of_ranks[0].size(); ++i) {
    std::vector<const Call*> calls;
    for (const Calls& of_rank : all.of_ranks) calls.push_back(&of_rank[i]);
    run_calls(calls);
  }
}

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  int rank;
  bool connected = false, finalized = false;
  int polls = 0;  // polls until the last call has succeeded
  size_t calls = 0;
  Calls pending = {};  // last submitted calls, not yet in the stream
  cudaStream_t stream = nullptr;
};

namespace {

constexpr int kPolls = 2;    // polls until a call has succeeded
thread_local int depth = 0;  // number of open groups
thread_local std::vector<std::pair<ncclComm_t, cudaStream_t>> in_group;
thread_local std::map<ncclComm_t, Calls> calls_in_group;

// Queues the pending calls of a communicator.
void queue(ncclComm& comm) {
  const auto all = collective(*comm.world, comm.calls++);
  const auto rank = static_cast<size_t>(comm.rank);
  all->of_ranks[rank] = std::exchange(comm.pending, {});
  all->submitted[rank] = true;
  for (size_t r = 0; r < all->of_ranks.size(); ++r)
    if (all->submitted[r] && !alike(all->of_ranks[r], all->of_ranks[rank]))
      fail(*comm.world, ncclInvalidUsage,
           "ranks " + std::to_string(rank) + " and " + std::to_string(r) + " called different collectives");
  const bool failed = comm.world->error != ncclSuccess;
  emulated::Item item{.label = {"a collective of NCCL"}};
  item.ready = [all, rank, failed] {
    const std::lock_guard lock(mutex);
    all->arrived[rank] = !failed;
    return all->aborted[rank] || std::find(all->arrived.begin(), all->arrived.end(), false) == all->arrived.end();
  };
  item.run = [all, rank] {
    const std::lock_guard lock(mutex);
    if (!all->aborted[rank] && !std::exchange(all->done, true)) run(*all);
    return cudaSuccess;
  };
  item.meeting = all->meeting;
  mutex.unlock();  // the executor calls ready()
  emulated::push(*static_cast<emulated::Stream*>(comm.stream), std::move(item));
  mutex.lock();
}

ncclResult_t submit(ncclComm_t comm, cudaStream_t stream, Calls calls) {
  const std::lock_guard lock(mutex);
  World& world = *comm->world;
  if (world.error != ncclSuccess) return world.error;
  if (!comm->connected || comm->finalized || comm->polls > 0)
    return fail(world, ncclInvalidUsage, "a call before ncclCommGetAsyncError() reported the success of the last call");
  comm->pending = std::move(calls);
  comm->stream = stream;
  comm->polls = kPolls;
  return ncclInProgress;
}

ncclResult_t call(ncclComm_t comm, cudaStream_t stream, const Call& made) {
  const bool sends = made.kind != Kind::receive, receives = made.kind != Kind::send;
  const size_t bytes = made.count * bytes_of(made.type);
  if ((sends && !emulated::in_device_memory(made.in, bytes)) ||
      (receives && !emulated::in_device_memory(made.out, bytes)))
    return ncclInvalidArgument;
  if (depth == 0) return submit(comm, stream, {made});
  if (calls_in_group[comm].empty()) in_group.emplace_back(comm, stream);
  calls_in_group[comm].push_back(made);
  return ncclSuccess;
}

}  // namespace

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "unknown";
}
const char* ncclGetLastError(ncclComm_t comm) { return comm->world->text.c_str(); }
ncclResult_t ncclGetVersion(int* version) { return *version = emulated_nccl::version, ncclSuccess; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made{0};
  *id = {};
  std::snprintf(id->internal, sizeof(id->internal), "%d", ++made);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  const std::lock_guard lock(mutex);
  auto& world = worlds[id.internal];
  if (!world) {
    world = std::make_shared<World>();
    world->devices.assign(static_cast<size_t>(ranks), -1);
  }
  int device = 0;
  cudaGetDevice(&device);
  if (std::count(world->devices.begin(), world->devices.end(), device) > 0)
    fail(*world, ncclInvalidUsage, "duplicate GPU detected");
  world->devices[static_cast<size_t>(rank)] = device;
  *comm = new ncclComm{world, rank};
  (*comm)->polls = kPolls;
  return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::lock_guard lock(mutex);
  comm->finalized = true;
  return comm->world->error == ncclSuccess ? ncclInProgress : comm->world->error;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) { return delete comm, ncclSuccess; }

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const std::lock_guard lock(mutex);
    for (const auto& all : comm->world->collectives) all->aborted[static_cast<size_t>(comm->rank)] = true;
  }
  emulated::wake();
  return delete comm, ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  std::lock_guard lock(mutex);
  World& world = *comm->world;
  *state = ncclInProgress;
  const bool all_here = std::count(world.devices.begin(), world.devices.end(), -1) == 0;
  if (emulated_nccl::async_error != ncclSuccess)
    fail(world, emulated_nccl::async_error, emulated_nccl::async_error_text);
  if (world.error != ncclSuccess) {
    *state = world.error;
  } else if (comm->polls > 0) {
    if (!all_here || --comm->polls > 0) return ncclSuccess;
    comm->connected = true;
    if (!comm->pending.empty()) queue(*comm);
    *state = world.error;
  } else if (comm->finalized) {
    const auto rank = static_cast<size_t>(comm->rank);
    for (const auto& all : world.collectives)
      if (all->submitted[rank] && !all->done) {
        mutex.unlock();
        emulated::progress();
        mutex.lock();
        return ncclSuccess;
      }
    *state = ncclSuccess;
  } else {
    *state = ncclSuccess;
  }
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() { return ++depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (depth == 0) return ncclInvalidUsage;
  if (--depth > 0) return ncclSuccess;
  ncclResult_t result = ncclSuccess;
  for (const auto& [comm, stream] : std::exchange(in_group, {})) {
    const ncclResult_t one = submit(comm, stream, std::move(calls_in_group[comm]));
    if (result == ncclSuccess || result == ncclInProgress) result = one;
  }
  calls_in_group.clear();
  return result;
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return call(comm, stream, {Kind::all_reduce, in, out, count, type, op, 0});
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return call(comm, stream, {Kind::reduce_scatter, in, out, count, type, op, 0});
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return call(comm, stream, {Kind::all_gather, in, out, count, type, ncclSum, 0});
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return call(comm, stream, {Kind::broadcast, in, out, count, type, ncclSum, root});
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(comm, stream, {Kind::send, in, nullptr, count, type, ncclSum, peer});
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return call(comm, stream, {Kind::receive, nullptr, out, count, type, ncclSum, peer});
}
