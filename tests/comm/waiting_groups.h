// Groups that behave like NCCL's: kernels wait for kernels of other ranks, so the calls of one rank must not overlap.
#pragma once
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "comm/group.h"

namespace godwit::test {

// The calls of one rank on all its groups.
struct CallLog {
  std::atomic<bool> in_flight{false}, concurrent{false};
  std::mutex mutex;
  std::vector<std::string> phases;  // phases in the order of the calls
};

class WaitingGroup : public Group {
 public:
  WaitingGroup(std::shared_ptr<Group> host, std::shared_ptr<CommStats> stats, std::shared_ptr<CallLog> log)
      : Group(host->rank(), host->links(), std::move(stats), host->control()),
        host_(std::move(host)),
        log_(std::move(log)) {}

  bool collectives_are_kernels() const override { return true; }
  void check_failure(std::string_view phase) override { host_->check_failure(phase); }

 protected:
  void do_all_reduce(const Tensor& x, Reduce op, std::string_view phase) override {
    run(phase, [&] { host_->all_reduce(x, op, phase); });
  }
  void do_reduce_scatter(const Tensor& in, const Tensor& out, Reduce op, std::string_view phase) override {
    run(phase, [&] { host_->reduce_scatter(in, out, op, phase); });
  }
  void do_all_gather(const Tensor& in, const Tensor& out, std::string_view phase) override {
    run(phase, [&] { host_->all_gather(in, out, phase); });
  }
  void do_all_to_all(const Tensor& in, const Tensor& out, std::string_view phase) override {
    run(phase, [&] { host_->all_to_all(in, out, phase); });
  }
  void do_broadcast(const Tensor& x, int root, std::string_view phase) override {
    run(phase, [&] { host_->broadcast(x, root, phase); });
  }
  void do_barrier(std::string_view phase) override { host_->barrier(phase); }

 private:
  template <class F>
  void run(std::string_view phase, F&& call) {
    if (log_->in_flight.exchange(true)) log_->concurrent = true;
    {
      std::lock_guard lock(log_->mutex);
      log_->phases.emplace_back(phase);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // gives another thread time for a concurrent call
    call();
    log_->in_flight = false;
  }

  std::shared_ptr<Group> host_;
  std::shared_ptr<CallLog> log_;
};

inline Communicator with_waiting_groups(const Communicator& host, const std::shared_ptr<CallLog>& log) {
  Communicator comm = host;
  comm.stats = std::make_shared<CommStats>();
  for (std::shared_ptr<Group>* group : {&comm.world, &comm.intra, &comm.inter, &comm.compute})
    *group = std::make_shared<WaitingGroup>(*group, comm.stats, log);
  return comm;
}

}  // namespace godwit::test
