// Scheduler: overlaps the exchange and update of complete buckets with the rest of the backward pass.
#pragma once
#include <atomic>
#include <functional>
#include <vector>

#include "comm/buckets/bucket.h"
#include "comm/buckets/step_clock.h"
#include "comm/group.h"
#include "engine/stream.h"

namespace godwit {

// Gradient hooks count the missing gradients of each bucket. Complete buckets go to `work` in layout order, on the
// communication stream, while the backward pass continues. `work` exchanges the bucket and updates its parameters. The
// backward pass never reads a parameter whose gradient is complete. Outside of a step, the hooks do nothing.
// - With on-demand gradients, which the caller releases, the backward pass waits while more than two buckets are in
//   flight.
// - Replays of a captured backward pass launch the buckets in the same way as the captured pass.
// - A step of k micro-batches sums their gradients in the buckets and launches the buckets during the last backward
//   pass.
//
// With NCCL (Group::collectives_are_kernels()), some steps do not overlap: their buckets are launched after the
// backward pass. These steps are:
// - the first step, steps with new shapes and captured steps, because loading a kernel waits for running kernels;
// - all steps of a model that communicates on the computing thread (comm.compute), because NCCL does not allow two
//   threads to communicate on one GPU at a time.
// In such a step, on-demand gradients are exchanged one bucket at a time, while the backward pass waits. Before the
// computing thread loads kernels (before_loading()), it waits until the GPU has finished the collectives queued so far.
class Scheduler {
 public:
  // `comm`: communicator of `work`; null if `work` does not communicate. With NCCL, a thread may have only one
  // scheduler. `buckets` and `comm` must outlive the scheduler.
  Scheduler(Buckets& buckets, std::function<void(Bucket&)> work, Communicator* comm = nullptr);
  ~Scheduler();

  void begin_step(int micro_batches = 1);  // marks all gradients as absent; call before the forward pass
  // Backward pass of the next micro-batch. The root gradient is 1/k, so the step has the gradient of the mean loss. A
  // step of one micro-batch may call godwit::backward() instead.
  void backward(const Var& loss);
  // Must be called after the last backward pass. Launches the remaining buckets, waits for them and rethrows errors.
  // Unused parameters have gradient 0.
  void finish_step();
  void wait();  // waits until the communication stream is idle; rethrows the stream's error
  // Queues other work on the communication stream, after the buckets launched so far. Returns a ticket for wait_for().
  int64_t submit(std::function<void()> communication);
  // Releases memory of the communication stream's pool. On a GPU, the stream first waits for the caller's stream.
  void release(Tensor memory);
  // Waits until the work of submit() has ended; on a GPU, until the work has been queued. Rethrows an error of the
  // stream.
  void wait_for(int64_t ticket);
  // Whether the computing thread may continue while the work of submit() runs. False in steps that do not overlap. In
  // this case, call synchronize() after submit().
  bool overlaps() const { return !must_defer(); }
  void synchronize();  // like wait(); on a GPU, also waits until the GPU has finished the stream's work
  // Sets a function that the computing thread calls with each complete bucket before the bucket's launch. At most one
  // bucket is then in flight at a time, in addition to the bucket that the backward pass fills.
  void on_complete(std::function<void(Bucket&)> f) { on_complete_ = std::move(f); }

  // Names of the parameters without a gradient in the last step, in layout order.
  const std::vector<std::string>& unused() const { return unused_; }
  // Number of buckets of the last step that were launched during the backward pass.
  int64_t overlapped() const { return overlapped_; }
  // Times of the last step. The scheduler calls set_waiting() for the computing thread; `work` calls enter().
  StepClock& clock() { return clock_; }
  const StepClock& clock() const { return clock_; }

 private:
  void on_gradient_ready(size_t bucket, size_t slot);
  void launch_ready_buckets();  // launches all next buckets that are complete
  void complete();              // counts the next bucket as complete; launches it unless launches are deferred
  void launch_bucket();         // launches the next bucket
  int64_t queue(std::function<void()> work);
  bool must_defer() const;
  bool first_step() const { return choices_ < 0; }
  bool collectives_are_kernels() const { return comm_ && comm_->world->collectives_are_kernels(); }
  void begin_backward();
  void fill_unused();
  bool last_micro_batch() const { return micro_batches_ == 1 || begun_ == micro_batches_; }

  Buckets& buckets_;
  std::function<void(Bucket&)> work_, on_complete_;
  Communicator* comm_;
  std::vector<std::vector<bool>> have_;  // per bucket and slot: whether the gradient is complete
  std::vector<int64_t> missing_;         // per bucket: number of missing gradients
  int64_t complete_ = 0;                 // number of complete buckets, in order
  int64_t next_ = 0;                     // bucket to launch next
  int micro_batches_ = 1, begun_ = 0;    // number of micro-batches in this step; number whose backward pass has begun
  int64_t overlapped_ = 0;
  int64_t submitted_ = 0, launched_ = 0;  // number of tasks of the stream; index of the last bucket's task
  std::atomic<int64_t> done_ = 0;         // number of tasks that have ended
  int64_t choices_ = -1;                  // library_choices() at the end of the last step
  bool in_step_ = false;
  bool arriving_ = false;  // whether a gradient of the last micro-batch has arrived
  bool deferred_ = false;  // whether this step's buckets are launched after backward
  std::vector<std::string> unused_;
  StepClock clock_;
  Stream stream_{/*high_priority=*/true};
};

}  // namespace godwit
