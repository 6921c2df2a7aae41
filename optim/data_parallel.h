// DataParallel: one rank's replica of a model in training: its buckets, its optimizer, and the scheduler between them.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/exchange/method.h"
#include "comm/parallel/scheduler.h"
#include "comm/parallel/sharding.h"
#include "optim/clip.h"
#include "optim/method.h"

namespace godwit {

struct DataParallelOptions {
  OptimizerConfig optimizer = "birder";
  ExchangeConfig exchange = "dense";  // mean of the gradients; not read if the optimizer communicates itself
  // An exchange of one's own in place of that one, which is then not read: docs/compressors.md.
  std::function<std::unique_ptr<Exchange>(const Buckets&, const Communicator&, uint64_t seed)> make_exchange = {};
  BucketOptions buckets = {};      // its alignment is replaced by what the optimizer needs
  uint64_t seed = 1;               // of stochastic quantisers
  // Largest norm of all gradients together; 0: not limited. Then no parameter is updated before all gradients are there.
  // It is the norm of the mean gradient, after its exchange. An optimizer that communicates itself has no mean gradient:
  // every rank scales its own by one factor, made of the mean of all ranks' squared norms, before anything is sent.
  double clip_norm = 0;
  // A step in which any rank has a gradient that is not finite: an error naming the parameter, or all ranks skip it
  // together, before any state moves. Then nothing is exchanged before all gradients are there, and 8 bytes go to each
  // rank.
  bool skip_not_finite = false;
  // Called after each bucket's update after which replicas agree, on its thread; with sharded parameters, what this rank
  // owns is updated then.
  std::function<void(const Bucket&, const StepInfo&)> updated = {};
};

// Where a step's time went, in seconds. Compression, communication and update run on the communication thread, during
// the backward pass where they can. `waiting` is the time of the computing thread in finish_step(): the part of these
// three that follows the backward pass, and `idle`.
struct StepTimes {
  double compression = 0;    // exchange without the calls of groups, and checks of the gradients
  double communication = 0;  // in calls of groups, waiting for other ranks included
  double update = 0;         // apply, and the callback after it
  double waiting = 0;
  double idle = 0;  // of `waiting`: none of the three ran, because the threads of this rank waited for a free core

  StepTimes& operator+=(const StepTimes& other) {
    compression += other.compression, communication += other.communication;
    update += other.update, waiting += other.waiting, idle += other.idle;
    return *this;
  }
};

//   DataParallel replica(net.parameters(), comm);
//   replica.step(loss_of(net, batch));          // or begin_step(), backward() once per micro-batch, finish_step()
class DataParallel {
 public:
  // Collective: every rank makes one, with equal parameters, and they check that they agree. Binds the parameters to
  // buckets; `comm` must outlive it.
  DataParallel(const std::vector<Parameter>& parameters, Communicator& comm, const DataParallelOptions& options = {});

  bool step(const Var& loss) { return step(loss, options_.optimizer.number("lr")); }
  bool step(const Var& loss, double lr);
  void begin_step(double lr, int micro_batches = 1);
  void backward(const Var& loss) { scheduler_.backward(loss); }
  bool finish_step();  // false: the step was skipped

  int64_t steps() const { return info_.step; }  // begun, without those that were skipped
  int64_t skipped() const { return skipped_; }
  const std::string& skip_reason() const { return skip_reason_; }  // of the last one; the same on all ranks
  const StepTimes& times() const { return times_; }                // of the last step
  double gradient_norm() const { return clip_ ? clip_->norm() : 0; }  // of the last step, before clipping
  Buckets& buckets() { return buckets_; }
  const Buckets& buckets() const { return buckets_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  const Scheduler& scheduler() const { return scheduler_; }
  // False between the synchronisations of an optimizer that takes local steps. synchronize(), collective, then makes the
  // replicas agree, as if they did so at the last step: call it before evaluating or saving.
  bool synchronized() const { return optimizer_->synchronized(); }
  void synchronize();
  void check_replicas();  // collective: throws when parameters or shared optimizer state differ between ranks
  // Collective: calls f while the parameters are the float32 values that their owners update, to save or replace them.
  void with_master_weights(const std::function<void()>& f);
  // Collective: completes x, laid out like the bucket's parameters, of which every rank has what it owns.
  void gather(const Bucket& bucket, const Tensor& x);
  std::vector<StateTensor> master_state() const;  // float32 masters this rank owns, where others compute with rounded ones

 private:
  template <class F>
  void timed(double& own, F&& f);
  void work(Bucket& bucket);     // when its gradient is there
  void proceed(Bucket& bucket);  // when it may be exchanged
  void exchange(Bucket& bucket);
  void update(Bucket& bucket);
  void clip_and_update();
  bool finite_on_all_ranks();  // collective

  Communicator& comm_;
  DataParallelOptions options_;
  Buckets buckets_;
  std::unique_ptr<Optimizer> optimizer_;
  bool communicates_itself_;
  std::unique_ptr<NormClip> clip_;  // null: no limit
  std::vector<Tensor> owned_gradients_;  // by bucket, between exchange and update, where gradients are lent and clipped
  std::unique_ptr<ShardedParameters> shards_;  // null: every rank updates everything
  StepInfo info_{0, 0};
  StepTimes times_;
  std::atomic<std::chrono::steady_clock::time_point> finish_begun_{};  // of this step; max: backward still runs
  double busy_ = 0;  // seconds of compression, communication and update after finish_begun_
  int64_t first_bad_ = 0;  // global offset of a gradient that is not finite in this step; numel: none
  int64_t skipped_ = 0;
  std::string skip_reason_;
  Scheduler scheduler_;  // last: its thread ends before what it works on is gone
};

}  // namespace godwit
