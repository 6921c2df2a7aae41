// Scheduler: overlaps the exchange and update of buckets with the backward pass that still fills the others.
#pragma once
#include <atomic>
#include <functional>
#include <vector>

#include "comm/group.h"
#include "comm/parallel/bucket.h"
#include "comm/parallel/step_clock.h"
#include "engine/stream.h"

namespace godwit {

// Gradient hooks count the missing gradients of each bucket. Full buckets go to `work` in plan order, on the
// communication stream, while the backward pass continues. `work` exchanges the bucket and updates its parameters;
// nothing in the backward pass reads a parameter whose gradient is complete. Outside of a step the hooks do nothing.
// - With on-demand gradients, `work` releases them, and the backward pass waits while more than two buckets are in
//   flight.
// - Replays of a captured backward pass launch the buckets as the captured pass did.
// - A step of k micro-batches sums their gradients in the buckets and launches these during the last backward pass.
//
// If kernels of the groups wait for other ranks (Group::kernels_wait(), NCCL), some steps do not overlap: their buckets
// are launched after the backward pass. These steps are:
// - the first step, steps with new shapes and captured steps, because loading a kernel waits for running kernels;
// - all steps of a model that communicates on the computing thread (comm.compute), because NCCL does not allow two
//   threads to communicate on one GPU at a time.
// In such a step on-demand gradients are exchanged one bucket at a time, while the backward pass waits. Before the
// computing thread loads kernels (before_loading()), it waits until the GPU has finished the collectives queued so far.
class Scheduler {
 public:
  // `comm`: communicator of `work`; null if it does not communicate. If its kernels wait (Group::kernels_wait()), a
  // thread may have one scheduler only. `buckets` and `comm` must outlive the scheduler.
  Scheduler(Buckets& buckets, std::function<void(Bucket&)> work, Communicator* comm = nullptr);
  ~Scheduler();

  void begin_step(int micro_batches = 1);  // before forward: gradients count as absent
  // Of the next micro-batch, with the root gradient 1/k: the step's gradient is that of the mean loss. A step of one
  // micro-batch may call godwit::backward() itself.
  void backward(const Var& loss);
  // After the last backward pass: launches the remaining buckets, waits, rethrows. Unused parameters have gradient 0.
  void finish_step();
  void wait();  // until the stream is idle; rethrows its error
  // Queues other work on the communication stream, behind the buckets handed over so far. Returns a number for
  // wait_for().
  int64_t submit(std::function<void()> communication);
  // Releases memory of the communication stream's pool: on a GPU once that stream has waited for the caller's.
  void release(Tensor memory);
  void wait_for(int64_t ticket);  // until the work of submit() has ended; rethrows an error of the stream
  // Sets a function that the computing thread calls when a bucket's gradient is complete, before it is handed over. One
  // bucket at a time is then in flight, so that one more has a gradient.
  void on_complete(std::function<void(Bucket&)> f) { on_complete_ = std::move(f); }

  // Names of parameters without a gradient in the last step, in layout order.
  const std::vector<std::string>& unused() const { return unused_; }
  // Buckets of the last step that were handed over while backward went on.
  int64_t overlapped() const { return overlapped_; }
  // Times of the last step. The scheduler calls set_waiting() for the computing thread; `work` calls enter().
  StepClock& clock() { return clock_; }
  const StepClock& clock() const { return clock_; }

 private:
  void on_gradient_ready(size_t bucket, size_t slot);
  void launch_ready_buckets();  // hands over the buckets that are next in order and complete
  void complete();     // the next one in order is
  void launch_bucket();    // the next one
  int64_t queue(std::function<void()> work);
  bool must_defer() const;
  bool first_step() const { return choices_ < 0; }
  bool kernels_wait() const { return comm_ && comm_->world->kernels_wait(); }
  void begin_backward();
  void fill_unused();
  bool last_micro_batch() const { return micro_batches_ == 1 || begun_ == micro_batches_; }

  Buckets& buckets_;
  std::function<void(Bucket&)> work_, on_complete_;
  Communicator* comm_;
  std::vector<std::vector<bool>> have_;  // per bucket and slot: its gradient is complete
  std::vector<int64_t> missing_;         // gradients a bucket still waits for
  int64_t complete_ = 0;                 // buckets whose gradients are there, in order
  int64_t next_ = 0;                     // bucket to hand over next
  int micro_batches_ = 1, begun_ = 0;    // of this step, and those whose backward() was called
  int64_t overlapped_ = 0;
  int64_t submitted_ = 0, launched_ = 0;  // works of the stream; the last bucket's
  std::atomic<int64_t> done_ = 0;         // works of the stream that have ended
  int64_t choices_ = -1;  // library_choices() at the end of the last step
  bool in_step_ = false;
  bool arriving_ = false;  // gradients of the last micro-batch
  bool deferred_ = false;  // this step's buckets wait for the end of backward
  std::vector<std::string> unused_;
  StepClock clock_;
  Stream stream_{/*high_priority=*/true};
};

}  // namespace godwit
