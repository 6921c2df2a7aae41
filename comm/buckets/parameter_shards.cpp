#include "comm/buckets/parameter_shards.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "autograd/leaf.h"
#include "comm/host_tensor.h"
#include "engine/context.h"
#include "engine/graph.h"

namespace godwit {
namespace {

constexpr const char *kExact = "parameters/masters", *kRequests = "parameters/requests";

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
  for (int64_t i = n - 1; i > 0; --i) last_order_.push_back(i);  // the forward pass begins with the last bucket
  for (int64_t i = 0; i < n; ++i) {
    last_order_.push_back(i);
    for (const Slot& slot : buckets[i].slots) Leaf(slot.var).on_use([this, i] { use(i); }, this);
  }
}

ParameterShards::~ParameterShards() {
  for (const Bucket& bucket : buckets_)
    for (const Slot& slot : bucket.slots) Leaf(slot.var).on_use(nullptr, this);
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
    Leaf(slot.var).read(own.param.range(begin - owned.begin, end - begin), begin - slot.offset);
  }
  return own;
}

// The forward pass may run before begin_step(). Recomputed layers run without gradients within a step.
bool ParameterShards::evicts() const { return options_.reshard_after_forward || !(in_step_ || context().grad_enabled); }

void ParameterShards::use(int64_t i) {
  check(!capturing(),
        "parameter shards: with sharding zero3 or hybrid the addresses of parameters change, which a captured CUDA ",
        "graph cannot follow; use zero1, or do not use graphs");
  if (all_held_) return;
  if (read_ != Read::none) return use_in_read(i);
  State& used = state(i);
  if (i != current_ || !used.memory.defined()) {
    current_ = i;
    expect_next();
    if (evicts()) evict(i);
    if (!used.memory.defined()) {
      start(i);
      if (!scheduler_.overlaps()) scheduler_.synchronize();  // the operation may load kernels
    }
    await(used);
  }
  used.used_in = operations();
  prefetch_next();
}

void ParameterShards::use_in_read(int64_t i) {
  if (!state(i).memory.defined()) {
    evict(i);
    while (gather_requested(i) != i) continue;
  }
  state(i).used_in = operations();
}

// Collective: gathers the bucket that the first rank with a request requests. Returns the index, or -1 if none.
int64_t ParameterShards::gather_requested(int64_t wanted) {
  const Tensor requests({group_->size()}, DType::i64, kCpu);
  group_->all_gather(cpu_tensor<int64_t>({wanted}), requests, kRequests);
  const std::span<const int64_t> all = requests.span<int64_t>();
  const auto first = std::ranges::find_if(all, [](int64_t i) { return i >= 0; });
  if (first == all.end()) return -1;
  Bucket& bucket = buckets_[*first];
  if (*first == wanted) attach(bucket);
  const Tensor to = *first == wanted ? bucket.param : Tensor({bucket.padded_numel()}, bucket.param.dtype());
  gather(bucket, read_ == Read::rounded, to);
  return *first;
}

void ParameterShards::expect_next() {
  order_.push_back(current_);
  const size_t count = order_.size();
  next_ = count < last_order_.size() && last_order_[count - 1] == current_ ? last_order_[count] : -1;
}

// Releases all buckets except `but`, the bucket expected next, and the buckets that the current operation reads.
void ParameterShards::evict(int64_t but) {
  for (int64_t i = 0; i < std::ssize(states_); ++i)
    if (i != but && i != next_ && state(i).memory.defined() && state(i).used_in != operations()) drop(i);
}

void ParameterShards::prefetch_next() {
  if (!in_step_ || next_ < 0 || state(next_).memory.defined() || (evicts() && resident_ > 1)) return;
  if (!scheduler_.overlaps()) return;
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
  State& its = state(i);
  its.ticket = scheduler_.submit([this, &bucket, &its, to = its.memory] {
    std::optional<HostReadsScope> checks;
    if (options_.checks) checks.emplace(options_.checks());
    wire_.gather(bucket, own_of(bucket).param, to, *group_);
    its.gathered = Event::record();
  });
}

void ParameterShards::await(State& its) {
  scheduler_.wait_for(its.ticket);
  std::exchange(its.gathered, Event()).wait();
}

void ParameterShards::drop(int64_t i) {
  State& its = state(i);
  if (!its.memory.defined()) return;
  await(its);
  buckets_[i].param.detach();
  its.memory = Tensor();
  --resident_;
}

void ParameterShards::begin_step() {
  check(!all_held_ && read_ == Read::none,
        "parameter shards: a step cannot begin within for_each(), with_all() or read()");
  in_step_ = true;
}

void ParameterShards::end_step() {
  in_step_ = false;
  last_order_ = order_;
  release_all();
}

void ParameterShards::release(const Bucket& bucket) { drop(bucket.index); }

void ParameterShards::release_all() {
  for (int64_t i = 0; i < std::ssize(states_); ++i) drop(i);
  order_.clear();
  current_ = next_ = -1;
}

void ParameterShards::check_idle() const {
  check(!in_step_ && !all_held_ && read_ == Read::none,
        "parameter shards: for_each(), with_all() and read() cannot be called within a step or within each other");
}

void ParameterShards::gather(const Bucket& bucket, bool rounded, const Tensor& to) {
  if (rounded) wire_.gather(bucket, own_of(bucket).param, to, *group_);
  else all_gather_shards(bucket, own_of(bucket).param, to, *group_, kExact);
  if (group_->collectives_are_kernels()) synchronize();  // the caller may load kernels
}

void ParameterShards::store(const Bucket& bucket) {
  const Segment& owned = bucket.owned;
  own_of(bucket).param.range(0, owned.numel()).copy_from(bucket.param.range(owned.begin, owned.numel()));
}

void ParameterShards::for_each(const std::function<void(Bucket&)>& f, bool stores) {
  check_idle();
  release_all();
  for (Bucket& bucket : buckets_) {
    attach(bucket);
    gather(bucket, /*rounded=*/false, bucket.param);
    f(bucket);
    if (stores) store(bucket);
    drop(bucket.index);
  }
}

void ParameterShards::with_all(bool rounded, const std::function<void()>& f) {
  check_idle();
  release_all();
  for (Bucket& bucket : buckets_) {
    attach(bucket);
    gather(bucket, rounded, bucket.param);
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

void ParameterShards::read(bool rounded, const std::function<void()>& f) {
  check_idle();
  release_all();
  read_ = rounded ? Read::rounded : Read::exact;
  try {
    f();
    release_all();
    while (gather_requested(-1) >= 0) continue;
  } catch (...) {
    read_ = Read::none;
    release_all();
    throw;
  }
  read_ = Read::none;
}

}  // namespace godwit
