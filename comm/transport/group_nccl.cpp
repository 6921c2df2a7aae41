#include "comm/transport/group_nccl.h"

#include <nccl.h>

#include <cstring>
#include <exception>
#include <set>
#include <thread>
#include <utility>

#include "comm/transport/cuda/watchdog_nccl.h"
#include "engine/context.h"
#include "engine/cuda/requirements.h"

namespace godwit {
namespace {

using Clock = std::chrono::steady_clock;
// A thread that waits until NCCL accepts work polls and yields at first, then sleeps between polls.
constexpr std::chrono::microseconds kYielding{200}, kSleep{20};

ncclDataType_t real_type(const Tensor& x) { return x.dtype() == DType::f32 ? ncclFloat32 : ncclFloat64; }
ncclRedOp_t operation(Reduce op) { return op == Reduce::mean ? ncclAvg : ncclSum; }
bool taken(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }
std::byte* at(const Tensor& x, int64_t offset) { return static_cast<std::byte*>(x.address()) + offset; }

class NcclGroup : public Group {
 public:
  NcclGroup(const std::shared_ptr<Group>& host, std::shared_ptr<CommStats> stats,
            std::shared_ptr<NcclWatchdog> watchdog)
      : Group(host->rank(), host->links(), std::move(stats), host->control()),
        watchdog_(std::move(watchdog)),
        member_{host, [this](std::string_view phase, double seconds) { add_time(phase, seconds); }} {
    watchdog_->join(member_);
  }

  // After a failure, no peer joins the pending collectives, so they are aborted.
  ~NcclGroup() override {
    if (std::uncaught_exceptions() > 0) watchdog_->give_up("the rank has ended with an error");
    watchdog_->leave(member_);
  }

  void check_failure(std::string_view phase) override {
    watchdog_->check_aborted();
    host().check_failure(phase);
  }
  bool collectives_are_kernels() const override { return true; }

 protected:
  void do_all_reduce(const Tensor& x, Reduce op, std::string_view phase) override {
    if (!x.device().is_cuda()) return host().all_reduce(x, op, phase);
    run(x, phase, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllReduce(x.address(), x.address(), count(x), real_type(x), operation(op), comm, stream);
    });
  }

  void do_reduce_scatter(const Tensor& in, const Tensor& out, Reduce op, std::string_view phase) override {
    if (!in.device().is_cuda()) return host().reduce_scatter(in, out, op, phase);
    run(in, phase, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclReduceScatter(in.address(), out.address(), count(out), real_type(in), operation(op), comm, stream);
    });
  }

  void do_all_gather(const Tensor& in, const Tensor& out, std::string_view phase) override {
    if (!in.device().is_cuda()) return host().all_gather(in, out, phase);
    run(in, phase, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclAllGather(in.address(), out.address(), static_cast<size_t>(in.bytes()), ncclUint8, comm, stream);
    });
  }

  void do_all_to_all(const Tensor& in, const Tensor& out, std::string_view phase) override {
    if (!in.device().is_cuda()) return host().all_to_all(in, out, phase);
    const int64_t part = in.bytes() / size();
    const auto bytes = static_cast<size_t>(part);
    run(in, phase, [&](ncclComm_t comm, cudaStream_t stream) {
      ncclResult_t result = ncclGroupStart();
      for (int peer = 0; peer < size() && taken(result); ++peer) {
        result = ncclSend(at(in, peer * part), bytes, ncclUint8, peer, comm, stream);
        if (taken(result)) result = ncclRecv(at(out, peer * part), bytes, ncclUint8, peer, comm, stream);
      }
      const ncclResult_t end = ncclGroupEnd();  // closes the NCCL group even after an error
      return taken(result) ? end : result;
    });
  }

  void do_broadcast(const Tensor& x, int root, std::string_view phase) override {
    if (!x.device().is_cuda()) return host().broadcast(x, root, phase);
    run(x, phase, [&](ncclComm_t comm, cudaStream_t stream) {
      return ncclBroadcast(x.address(), x.address(), static_cast<size_t>(x.bytes()), ncclUint8, root, comm, stream);
    });
  }

  void do_barrier(std::string_view phase) override { host().barrier(phase); }

 private:
  static size_t count(const Tensor& x) { return static_cast<size_t>(x.numel()); }

  // `enqueue` submits the work to NCCL (nonblocking). run() returns when NCCL has put the work into the stream.
  template <class F>
  void run(const Tensor& x, std::string_view phase, F&& enqueue) {
    const Cuda device = cuda_of(x.device());
    if (x.numel() == 0) return;
    try {
      if (!connected_) connect(phase);
      CudaEvent begin(/*timed=*/true), end(/*timed=*/true);
      begin.record(device.stream);
      watchdog_->call(member_, phase, [&] { return enqueue(member_.comm, device.stream); });
      await_acceptance(phase);
      end.record(device.stream);
      watchdog_->watch(member_, phase, std::move(begin), std::move(end));
    } catch (const std::exception& error) {
      watchdog_->give_up(error.what());
      throw;
    }
    time_follows();
    // Kernels that follow the first collective of a phase may not be loaded yet, and no kernel may be loaded while a
    // collective runs (Group::collectives_are_kernels).
    if (phases_.emplace(phase).second) synchronize();
  }

  // A group connects in its first collective. This is safe while other groups' collectives run, even if NCCL then waits
  // for this GPU: a rank communicates on one thread at a time, in the order of all ranks (Scheduler), so every rank has
  // queued these collectives before it connects, and they end.
  void connect(std::string_view phase) {
    ncclUniqueId id{};
    if (rank() == 0) watchdog_->call(member_, phase, [&] { return ncclGetUniqueId(&id); });
    const Tensor bytes({static_cast<int64_t>(sizeof(id))}, DType::u8, kCpu);
    std::memcpy(bytes.raw(), &id, sizeof(id));
    host().broadcast(bytes, 0, "nccl/connect");
    std::memcpy(&id, bytes.raw(), sizeof(id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    watchdog_->call(member_, phase,
                    [&] { return ncclCommInitRankConfig(&member_.comm, size(), id, rank(), &config); });
    await_acceptance(phase);
    connected_ = true;
  }

  // Waits until NCCL has accepted all submitted work.
  void await_acceptance(std::string_view phase) {
    for (const auto start = Clock::now();;) {
      ncclResult_t state = ncclSuccess;
      watchdog_->call(member_, phase, [&] {
        const ncclResult_t result = ncclCommGetAsyncError(member_.comm, &state);
        return result == ncclSuccess ? state : result;
      });
      if (state == ncclSuccess) return;
      if (Clock::now() - start < kYielding) {
        std::this_thread::yield();
        continue;
      }
      check_failure(phase);
      watchdog_->check_time(member_, start, phase);
      std::this_thread::sleep_for(kSleep);
    }
  }

  Group& host() const { return *member_.host; }

  const std::shared_ptr<NcclWatchdog> watchdog_;
  NcclWatchdog::Member member_;
  bool connected_ = false;
  std::set<std::string, std::less<>> phases_;  // phases of earlier collectives
};

}  // namespace

bool nccl_built() { return true; }

Communicator with_nccl(const Communicator& host, std::chrono::milliseconds timeout) {
  int version = 0;
  check(ncclGetVersion(&version) == ncclSuccess, "ncclGetVersion failed");
  check_version("NCCL", version, NCCL_VERSION_CODE);
  Communicator comm = host;
  comm.stats = std::make_shared<CommStats>();  // traffic through the host groups is counted here only
  const auto watchdog = std::make_shared<NcclWatchdog>(timeout);
  for (std::shared_ptr<Group>* group : {&comm.world, &comm.intra, &comm.inter, &comm.compute})
    *group = std::make_shared<NcclGroup>(*group, comm.stats, watchdog);
  return comm;
}

}  // namespace godwit
