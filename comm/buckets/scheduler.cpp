#include "comm/buckets/scheduler.h"

#include <typeinfo>
#include <utility>

#include "autograd/leaf.h"
#include "engine/context.h"
#include "engine/gpu.h"
#include "engine/graph.h"

namespace godwit {

Scheduler::Scheduler(Buckets& buckets, std::function<void(Bucket&)> work, Communicator* comm)
    : buckets_(buckets), work_(std::move(work)), comm_(comm) {
  check(work_ != nullptr, "scheduler: `work` is null; pass a function");
  for (size_t b = 0; b < static_cast<size_t>(buckets.size()); ++b) {
    const std::vector<Slot>& slots = buckets[static_cast<int64_t>(b)].slots;
    have_.emplace_back(slots.size(), false);
    missing_.push_back(static_cast<int64_t>(slots.size()));
    for (size_t s = 0; s < slots.size(); ++s)
      Leaf(slots[s].var).on_grad([this, b, s] { on_gradient_ready(b, s); }, this);
  }
  if (collectives_are_kernels()) before_loading([this] { stream_.synchronize(); }, this);
}

Scheduler::~Scheduler() {
  if (collectives_are_kernels()) before_loading(nullptr, this);
  for (const Bucket& bucket : buckets_)
    for (const Slot& slot : bucket.slots) Leaf(slot.var).on_grad(nullptr, this);
}

void Scheduler::begin_step(int micro_batches) {
  stream_.wait();
  check(!in_step_, "scheduler: begin_step() before the last step was finished");
  check(micro_batches >= 1, "scheduler: a step of ", micro_batches, " micro-batches; it needs at least one");
  for (int64_t b = 0; b < buckets_.size(); ++b) {
    const std::vector<Slot>& slots = buckets_[b].slots;
    have_[static_cast<size_t>(b)].assign(slots.size(), false);
    missing_[static_cast<size_t>(b)] = static_cast<int64_t>(slots.size());
    for (const Slot& slot : slots) {
      check(Leaf(slot.var).grad_hook_owner() == this, "scheduler: parameter '", slot.name,
            "' now belongs to another DataParallel or Scheduler; use the newest, or destroy this one first");
      slot.var.clear_grad();
    }
  }
  next_ = complete_ = 0;
  arriving_ = deferred_ = false;
  micro_batches_ = micro_batches;
  begun_ = 0;
  overlapped_ = 0;
  unused_.clear();
  clock_.begin();
  in_step_ = true;
}

void Scheduler::backward(const Var& loss) {
  begin_backward();
  on_replay([this] { begin_backward(); });
  godwit::backward(loss, 1.0 / micro_batches_);
}

void Scheduler::begin_backward() {
  check(in_step_, "scheduler: backward() without begin_step()");
  check(begun_ < micro_batches_, "scheduler: backward() number ", begun_ + 1, " in a step of ", micro_batches_,
        " micro-batches");
  ++begun_;
}

void Scheduler::on_gradient_ready(size_t bucket, size_t slot) {
  const Slot& parameter = buckets_[static_cast<int64_t>(bucket)].slots[slot];
  if (!in_step_) return;
  if (capturing() && parameter.var.has_grad()) {
    check(!buckets_.on_demand_gradients(),
          "scheduler: with sharding zero2, zero3 or hybrid the addresses of gradients change, which a captured CUDA ",
          "graph cannot follow; use zero1, or do not use graphs");
    on_replay([var = parameter.var] { Leaf(var).mark_grad_valid(); });
  }
  if (!last_micro_batch()) return;
  if (!arriving_) deferred_ = must_defer();
  arriving_ = true;
  if (!parameter.var.has_grad()) return;  // reached by backward, but nothing was added: unused
  check(!have_[bucket][slot], "scheduler: parameter '", parameter.name,
        "' got a gradient from a second backward() in one step");
  have_[bucket][slot] = true;
  --missing_[bucket];
  launch_ready_buckets();
}

// With a new shape, the forward pass has made library choices; the backward pass will make more.
bool Scheduler::must_defer() const {
  return collectives_are_kernels() && (capturing() || choices_ != library_choices() || comm_->compute->calls() > 0);
}

void Scheduler::launch_ready_buckets() {
  while (complete_ < buckets_.size() && missing_[static_cast<size_t>(complete_)] == 0)
    graph_break([this] { complete(); });
}

void Scheduler::complete() {
  ++complete_;
  if (!deferred_) return launch_bucket();
  if (!buckets_.on_demand_gradients()) return;
  launch_bucket();
  synchronize();  // the backward pass may load kernels
}

void Scheduler::launch_bucket() {
  constexpr size_t kAhead = 2;
  Bucket& next = buckets_[next_];
  if (on_complete_) {
    on_complete_(next);
    wait_for(launched_);
    buckets_.free_gradients();  // all earlier buckets have finished
  } else if (buckets_.on_demand_gradients()) {
    const WaitingScope waiting(clock_);
    stream_.wait_until_pending(kAhead);
  }
  launched_ = queue([this, &bucket = next] {
    try {
      work_(bucket);
    } catch (const Error& error) {
      if (typeid(error) != typeid(Error)) throw;
      throw error.with_text(detail::concat(error.what(), " (bucket ", bucket.index, ")"));
    }
  });
  ++next_;
}

int64_t Scheduler::queue(std::function<void()> work) {
  stream_.submit([this, run = std::move(work)]() mutable {
    run();
    run = nullptr;  // frees the captures before the task counts as done
    ++done_;
  });
  return ++submitted_;
}

int64_t Scheduler::submit(std::function<void()> communication) {
  return queue([this, run = std::move(communication)] {
    const Activity before = clock_.enter(Activity::communication);
    run();
    clock_.enter(before);
  });
}

void Scheduler::release(Tensor memory) {
  if (memory.device().is_cuda()) queue([released = std::move(memory)] {});
}

void Scheduler::wait_for(int64_t ticket) {
  if (done_ >= ticket) return;
  const WaitingScope waiting(clock_);
  stream_.wait_until_pending(static_cast<size_t>(submitted_ - ticket));
  if (done_ < ticket) stream_.wait();
}

void Scheduler::finish_step() {
  check(in_step_, "scheduler: finish_step() without begin_step()");
  check(last_micro_batch(), "scheduler: finish_step() after ", begun_, " of ", micro_batches_, " micro-batches");
  const WaitingScope waiting(clock_);
  in_step_ = false;
  overlapped_ = deferred_ ? 0 : next_;
  fill_unused();
  if (collectives_are_kernels() && first_step()) {  // all ranks load the kernels of the step before any communicates
    godwit::synchronize();
    comm_->world->barrier("first_step");
  }
  while (next_ < buckets_.size()) launch_bucket();
  stream_.wait();
  choices_ = library_choices();
}

void Scheduler::fill_unused() {
  for (int64_t b = complete_; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    buckets_.acquire_gradient(bucket);
    for (size_t s = 0; s < bucket.slots.size(); ++s) {
      const Slot& slot = bucket.slots[s];
      if (slot.var.has_grad()) continue;  // complete, or a sum to which the last micro-batch added nothing
      Leaf(slot.var).move_early_gradient();
      bucket.grad.range(slot.offset, slot.numel).zero();
      unused_.push_back(slot.name);
    }
  }
}

void Scheduler::wait() { stream_.wait(); }

void Scheduler::synchronize() {
  const WaitingScope waiting(clock_);
  stream_.synchronize();
}

}  // namespace godwit
