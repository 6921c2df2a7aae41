#include "comm/transport/group_nccl.h"

#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "engine/context.h"
#include "engine/cuda/cuda_context.h"
#include "engine/cuda/requirements.h"

namespace godwit {
namespace {

using Clock = std::chrono::steady_clock;
// A waiting thread polls and yields for a moment, then sleeps between polls.
constexpr std::chrono::microseconds kYielding{200}, kSleep{20};
constexpr std::chrono::seconds kFarewell{10};  // for pending work when a group is destroyed

ncclDataType_t real_type(const Tensor& x) { return x.dtype() == DType::f32 ? ncclFloat32 : ncclFloat64; }
ncclRedOp_t operation(Reduce op) { return op == Reduce::mean ? ncclAvg : ncclSum; }
bool taken(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }
std::byte* at(const Tensor& x, int64_t offset) { return static_cast<std::byte*>(x.address()) + offset; }

class NcclGroup : public Group {
 public:
  NcclGroup(std::shared_ptr<Group> host, std::shared_ptr<CommStats> stats, std::chrono::milliseconds timeout)
      : Group(host->rank(), host->links(), std::move(stats)), host_(std::move(host)), timeout_(timeout) {}

  // Waits for pending work, but at most kFarewell, and not at all after a failure.
  ~NcclGroup() override {
    if (!comm_) return;
    ncclResult_t state = std::uncaught_exceptions() > 0 ? ncclRemoteError : ncclCommFinalize(comm_);
    for (const auto start = Clock::now(); state == ncclInProgress && Clock::now() - start < kFarewell;) {
      std::this_thread::sleep_for(kSleep);
      if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) break;
    }
    if (state == ncclSuccess) ncclCommDestroy(comm_);
    else ncclCommAbort(comm_);
  }

  void abort(const std::string& reason) override { host_->abort(reason); }
  void check_failure(std::string_view phase) override { host_->check_failure(phase); }
  std::shared_ptr<void> busy() override { return host_->busy(); }
  Clock::time_point last_busy() override { return host_->last_busy(); }
  bool may_continue(bool stop) override { return host_->may_continue(stop); }
  void forget_stop() override { host_->forget_stop(); }
  bool kernels_wait() const override { return true; }

 protected:
  void do_all_reduce(const Tensor& x, Reduce op, std::string_view phase) override {
    if (!x.device().is_cuda()) return host_->all_reduce(x, op, phase);
    run(x, phase, [&](cudaStream_t stream) {
      return ncclAllReduce(x.address(), x.address(), count(x), real_type(x), operation(op), comm_, stream);
    });
  }

  void do_reduce_scatter(const Tensor& in, const Tensor& out, Reduce op, std::string_view phase) override {
    if (!in.device().is_cuda()) return host_->reduce_scatter(in, out, op, phase);
    run(in, phase, [&](cudaStream_t stream) {
      return ncclReduceScatter(in.address(), out.address(), count(out), real_type(in), operation(op), comm_, stream);
    });
  }

  void do_all_gather(const Tensor& in, const Tensor& out, std::string_view phase) override {
    if (!in.device().is_cuda()) return host_->all_gather(in, out, phase);
    run(in, phase, [&](cudaStream_t stream) {
      return ncclAllGather(in.address(), out.address(), static_cast<size_t>(in.bytes()), ncclUint8, comm_, stream);
    });
  }

  void do_all_to_all(const Tensor& in, const Tensor& out, std::string_view phase) override {
    if (!in.device().is_cuda()) return host_->all_to_all(in, out, phase);
    const int64_t part = in.bytes() / size();
    const auto bytes = static_cast<size_t>(part);
    run(in, phase, [&](cudaStream_t stream) {
      ncclResult_t result = ncclGroupStart();
      for (int peer = 0; peer < size() && taken(result); ++peer) {
        result = ncclSend(at(in, peer * part), bytes, ncclUint8, peer, comm_, stream);
        if (taken(result)) result = ncclRecv(at(out, peer * part), bytes, ncclUint8, peer, comm_, stream);
      }
      const ncclResult_t end = ncclGroupEnd();  // closes the NCCL group even after an error
      return taken(result) ? end : result;
    });
  }

  void do_broadcast(const Tensor& x, int root, std::string_view phase) override {
    if (!x.device().is_cuda()) return host_->broadcast(x, root, phase);
    run(x, phase, [&](cudaStream_t stream) {
      return ncclBroadcast(x.address(), x.address(), static_cast<size_t>(x.bytes()), ncclUint8, root, comm_, stream);
    });
  }

  void do_barrier(std::string_view phase) override { host_->barrier(phase); }

 private:
  static size_t count(const Tensor& x) { return static_cast<size_t>(x.numel()); }

  // `enqueue` submits the work to NCCL (nonblocking); run() waits until the GPU has finished it.
  template <class F>
  void run(const Tensor& x, std::string_view phase, F&& enqueue) {
    const Cuda device = cuda_of(x.device());
    if (x.numel() == 0) return;
    check(broken_.empty(), "rank ", context().rank, ": phase '", phase, "': the group was given up: ", broken_);
    try {
      if (!comm_) connect(phase);
      accept(enqueue(device.stream), phase);
      wait(phase, [&] {
        const cudaError_t status = cudaStreamQuery(device.stream);
        if (status != cudaErrorNotReady) cuda_check(status, "cudaStreamQuery");
        return status == cudaSuccess;
      });
    } catch (const std::exception& error) {
      give_up(error.what());
      throw;
    }
  }

  void connect(std::string_view phase) {
    ncclUniqueId id{};
    if (rank() == 0) accept(ncclGetUniqueId(&id), phase);
    const Tensor bytes({static_cast<int64_t>(sizeof(id))}, DType::u8, kCpu);
    std::memcpy(bytes.raw(), &id, sizeof(id));
    host_->broadcast(bytes, 0, "nccl/connect");
    std::memcpy(&id, bytes.raw(), sizeof(id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    accept(ncclCommInitRankConfig(&comm_, size(), id, rank(), &config), phase);
    wait(phase, [] { return true; });
  }

  // Waits until NCCL has accepted all submitted work and done() returns true.
  template <class F>
  void wait(std::string_view phase, F&& done) {
    for (const auto start = Clock::now();;) {
      ncclResult_t state = ncclSuccess;
      accept(ncclCommGetAsyncError(comm_, &state), phase);
      accept(state, phase);
      if (state == ncclSuccess && done()) return;
      const auto waited = Clock::now() - start;
      if (waited < kYielding) {
        std::this_thread::yield();
        continue;
      }
      check_failure(phase);
      check(Clock::now() - std::max(start, last_busy()) < timeout_, "rank ", context().rank, ": phase '", phase,
            "': timeout: NCCL did not finish within ", static_cast<double>(timeout_.count()) / 1000,
            " s; a peer is missing, or its GPU or link hangs");
      std::this_thread::sleep_for(kSleep);
    }
  }

  void accept(ncclResult_t result, std::string_view phase) const {
    if (taken(result)) return;
    const char* more = comm_ ? ncclGetLastError(comm_) : nullptr;
    fail("rank ", context().rank, ": phase '", phase, "': NCCL: ", ncclGetErrorString(result),
         more && *more ? std::string(" (") + more + ")" : std::string(), "; NCCL_DEBUG=INFO tells more");
  }

  // Aborts the communicator, so that its kernels end and the stream can make progress.
  void give_up(const std::string& reason) {
    broken_ = reason;
    if (comm_) ncclCommAbort(std::exchange(comm_, nullptr));
  }

  std::shared_ptr<Group> host_;
  const std::chrono::milliseconds timeout_;
  ncclComm_t comm_ = nullptr;
  std::string broken_;  // reason for the abort; empty while the group works
};

}  // namespace

bool nccl_built() { return true; }

Communicator with_nccl(const Communicator& host, std::chrono::milliseconds timeout) {
  int version = 0;
  check(ncclGetVersion(&version) == ncclSuccess, "NCCL has no version");
  check_version("NCCL", version, NCCL_VERSION_CODE);
  Communicator comm = host;
  comm.stats = std::make_shared<CommStats>();  // traffic through the host groups is counted here only
  for (std::shared_ptr<Group>* group : {&comm.world, &comm.intra, &comm.inter, &comm.compute})
    *group = std::make_shared<NcclGroup>(*group, comm.stats, timeout);
  return comm;
}

}  // namespace godwit
