#include "comm/parallel/parameter_shards.h"

#include <algorithm>
#include <utility>

#include "engine/context.h"

namespace godwit {
namespace {

constexpr const char* kPhase = "parameters/masters";

}  // namespace

ParameterShards::ParameterShards(Buckets& buckets, std::vector<Bucket> own, std::shared_ptr<Group> group,
                                 Scheduler& scheduler, const GatherOptions& options)
    : buckets_(buckets),
      own_(std::move(own)),
      group_(std::move(group)),
      scheduler_(scheduler),
      options_(options),
      wire_(buckets, options.wire, options.block_size, /*keeps_masters=*/false),
      states_(static_cast<size_t>(buckets.size())) {
  const int64_t n = buckets.size();
  followers_.fill(std::vector<int64_t>(static_cast<size_t>(n), -1));
  for (int64_t i = 0; i < n; ++i) {  // the forward pass begins with the last bucket
    follower(Pass::forward, i) = i - 1;
    follower(Pass::backward, i) = i + 1 < n ? i + 1 : -1;
    for (const Slot& slot : buckets[i].slots) slot.var.on_use([this, i] { use(i); });
  }
}

ParameterShards::~ParameterShards() {
  for (const Bucket& bucket : buckets_)
    for (const Slot& slot : bucket.slots) slot.var.on_use(nullptr);
}

Bucket ParameterShards::own_bucket(const Bucket& bucket, int64_t alignment) {
  const Segment& owned = bucket.owned;
  int64_t length = bucket.padded_numel() / std::ssize(bucket.shards);
  if (!has_regular_shards(bucket)) length = (longest_shard(bucket) + alignment - 1) / alignment * alignment;
  Bucket own{bucket.index, bucket.begin + owned.begin, owned.numel(), {}, {}, {}, {0, owned.numel()}, {}};
  own.param = Tensor::zeros({length}, bucket.param.dtype());
  for (const Slot& slot : bucket.slots) {
    const int64_t begin = std::max(slot.offset, owned.begin), end = std::min(slot.offset + slot.numel, owned.end);
    if (begin >= end) continue;
    own.slots.push_back({slot.name, slot.var, slot.decay, begin - owned.begin, end - begin, slot.layout});
    slot.var.read(own.param.range(begin - owned.begin, end - begin), begin - slot.offset);
  }
  return own;
}

// The forward pass of recompute() disables gradients within a step.
bool ParameterShards::evicts() const {
  return options_.reshard_after_forward || (!context().grad_enabled && !in_step_);
}

void ParameterShards::use(int64_t i) {
  if (all_held_) return;
  State& used = state(i);
  if (i != current_ || pass_ != current_pass() || !used.memory.defined()) {
    if (current_ >= 0 && i != current_) follower(pass_, current_) = i;
    pass_ = current_pass();
    current_ = i;
    next_ = follower(pass_, i);
    if (evicts()) evict(i);
    if (!used.memory.defined()) start(i);
    scheduler_.wait_for(used.ticket);
  }
  used.used_in = operations();
  look_ahead();
}

// Releases the buckets that no longer serve: all but `but`, and those that the present operation reads.
void ParameterShards::evict(int64_t but) {
  for (int64_t i = 0; i < std::ssize(states_); ++i)
    if (i != but && state(i).memory.defined() && state(i).used_in != operations()) drop(i);
}

void ParameterShards::look_ahead() {
  if (!in_step_ || next_ < 0 || state(next_).memory.defined() || (evicts() && resident_ > 1)) return;
  start(std::exchange(next_, -1));
}

void ParameterShards::attach(Bucket& bucket) {
  State& its = state(bucket.index);
  its.memory = Tensor({bucket.padded_numel()}, bucket.param.dtype());
  its.memory.range(bucket.numel, bucket.padded_numel() - bucket.numel).zero();  // the padding
  its.used_in = ~uint64_t{0};
  bucket.param.attach(its.memory);
  ++resident_;
}

void ParameterShards::start(int64_t i) {
  Bucket& bucket = buckets_[i];
  attach(bucket);
  state(i).ticket = scheduler_.submit(
      [this, &bucket, to = state(i).memory] { wire_.gather(bucket, own_of(bucket).param, to, *group_); });
}

void ParameterShards::drop(int64_t i) {
  State& its = state(i);
  if (!its.memory.defined()) return;
  scheduler_.wait_for(its.ticket);
  buckets_[i].param.detach();
  its.memory = Tensor();
  --resident_;
}

void ParameterShards::begin_step() { in_step_ = true; }

void ParameterShards::end_step() {
  in_step_ = false;
  release_all();
}

void ParameterShards::release(const Bucket& bucket) { drop(bucket.index); }

void ParameterShards::release_all() {
  for (int64_t i = 0; i < std::ssize(states_); ++i) drop(i);
  current_ = next_ = -1;
}

void ParameterShards::gather_exactly(Bucket& bucket) {
  attach(bucket);
  all_gather_shards(bucket, own_of(bucket).param, bucket.param, *group_, kPhase);
}

void ParameterShards::store(const Bucket& bucket) {
  const Segment& owned = bucket.owned;
  own_of(bucket).param.range(0, owned.numel()).copy_from(bucket.param.range(owned.begin, owned.numel()));
}

void ParameterShards::for_each(const std::function<void(Bucket&)>& f, bool stores) {
  check(!in_step_ && !all_held_, "parameter shards: values of all shards are gathered outside of steps only");
  release_all();
  for (Bucket& bucket : buckets_) {
    gather_exactly(bucket);
    f(bucket);
    if (stores) store(bucket);
    drop(bucket.index);
  }
}

void ParameterShards::with_all(bool rounded, const std::function<void()>& f) {
  check(!in_step_ && !all_held_, "parameter shards: values of all shards are gathered outside of steps only");
  release_all();
  for (Bucket& bucket : buckets_) {
    if (!rounded) gather_exactly(bucket);
    else attach(bucket), wire_.gather(bucket, own_of(bucket).param, bucket.param, *group_);
  }
  all_held_ = true;
  const auto end = [&](bool stores) {
    all_held_ = false;
    if (stores)
      for (const Bucket& bucket : buckets_) store(bucket);
    release_all();
  };
  try {
    f();
  } catch (...) {
    end(false);
    throw;
  }
  end(!rounded);
}

}  // namespace godwit
