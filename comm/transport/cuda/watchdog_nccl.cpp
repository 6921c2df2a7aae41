#include "comm/transport/cuda/watchdog_nccl.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "engine/context.h"
#include "engine/cuda/requirements.h"
#include "engine/start_thread.h"

namespace godwit {
namespace {

constexpr std::chrono::milliseconds kPoll{1};  // between polls while a collective is pending
constexpr std::chrono::seconds kDrain{10};     // wait for pending work when a group is destroyed

}  // namespace

NcclWatchdog::NcclWatchdog(std::chrono::milliseconds timeout)
    : rank_(context().rank),
      gpu_(context().device.index),
      timeout_(timeout),
      aborted_(context().cuda->aborted),
      thread_(start_thread([this] { run(); }, detail::concat("the thread of rank ", rank_, " that watches NCCL"))) {}

NcclWatchdog::~NcclWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void NcclWatchdog::join(Member& member) {
  const std::lock_guard lock(mutex_);
  members_.push_back(&member);
}

void NcclWatchdog::leave(Member& member) {
  std::unique_lock lock(mutex_);
  ncclResult_t state = member.comm ? ncclCommFinalize(member.comm) : ncclSuccess;
  for (const auto start = Clock::now(); member.comm && state == ncclInProgress && Clock::now() - start < kDrain;) {
    lock.unlock();
    std::this_thread::sleep_for(kPoll);
    lock.lock();
    if (member.comm && ncclCommGetAsyncError(member.comm, &state) != ncclSuccess) break;
  }
  if (member.comm && state == ncclSuccess) ncclCommDestroy(std::exchange(member.comm, nullptr));
  if (member.comm) abort(detail::concat("rank ", rank_, ": NCCL did not finish the pending work of a group"));
  std::erase_if(pending_, [&](const Collective& one) { return one.member == &member; });
  std::erase(members_, &member);
}

void NcclWatchdog::watch(Member& member, std::string_view phase, CudaEvent begin, CudaEvent end) {
  {
    const std::lock_guard lock(mutex_);
    aborted_->check();
    pending_.push_back({&member, std::string(phase), std::move(begin), std::move(end), std::nullopt});
  }
  changed_.notify_all();
}

void NcclWatchdog::give_up(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  abort(reason);
}

void NcclWatchdog::check_time(const Member& member, Clock::time_point start, std::string_view phase) const {
  check(Clock::now() - std::max(start, member.host->control()->last_busy()) < timeout_, "rank ", rank_, ": phase '",
        phase, "': timeout: NCCL did not finish within ", static_cast<double>(timeout_.count()) / 1000,
        " s; a peer is missing, or its GPU or link hangs");
}

void NcclWatchdog::run() {
  cudaSetDevice(gpu_);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;  // polls events while another thread captures a graph
  cudaThreadExchangeStreamCaptureMode(&mode);
  std::unique_lock lock(mutex_);
  while (!closing_) {
    try {
      poll();
    } catch (const std::exception& error) {
      abort(error.what());
    }
    if (pending_.empty()) changed_.wait(lock, [&] { return closing_ || !pending_.empty(); });
    else changed_.wait_for(lock, kPoll, [&] { return closing_; });
  }
}

// The streams of a rank run its collectives in the order of the calls. The timeout of a collective begins when a poll
// finds that it is the oldest and has started on the GPU. Earlier work of its stream does not count.
void NcclWatchdog::poll() {
  for (; !pending_.empty() && pending_.front().end.done(); pending_.pop_front()) {
    const Collective& ended = pending_.front();
    ended.member->took(ended.phase, ended.end.seconds_since(ended.begin));
  }
  if (pending_.empty()) return;
  check_communicators();
  Collective& oldest = pending_.front();
  oldest.member->host->check_failure(oldest.phase);
  if (!oldest.begun && oldest.begin.done()) oldest.begun = Clock::now();
  if (oldest.begun) check_time(*oldest.member, *oldest.begun, oldest.phase);
}

void NcclWatchdog::check_communicators() {
  for (const Member* const member : members_) {
    const auto oldest =
        std::find_if(pending_.begin(), pending_.end(), [&](const Collective& one) { return one.member == member; });
    if (!member->comm || oldest == pending_.end()) continue;
    ncclResult_t state = ncclSuccess;
    accept(ncclCommGetAsyncError(member->comm, &state), member->comm, oldest->phase);
    accept(state, member->comm, oldest->phase);
  }
}

// The aborts are one NCCL group. A single abort may wait for all kernels of the GPU, and kernels of the other
// communicators end only after their own abort.
void NcclWatchdog::abort(const std::string& reason) {
  aborted_->set(reason);
  ncclGroupStart();
  for (Member* const member : members_)
    if (member->comm) ncclCommAbort(std::exchange(member->comm, nullptr));
  ncclGroupEnd();
  pending_.clear();
}

void NcclWatchdog::accept(ncclResult_t result, ncclComm_t comm, std::string_view phase) const {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* const last = comm ? ncclGetLastError(comm) : nullptr;
  const std::string more = last ? last : "";
  fail("rank ", rank_, ": phase '", phase, "': NCCL: ", ncclGetErrorString(result),
       more.empty() ? "" : " (" + more + ")", more.find("out of memory") == std::string::npos ? "" : memory_advice(),
       "; set NCCL_DEBUG=INFO for details");
}

}  // namespace godwit
