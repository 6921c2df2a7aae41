// ZeRO-3: each rank keeps its shard of every bucket's parameters. All values of a bucket have memory while operations
// read them.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "comm/parallel/scheduler.h"
#include "comm/parallel/sharding.h"
#include "engine/event.h"
#include "engine/host_reads.h"

namespace godwit {

// How parameters are gathered.
struct GatherOptions {
  ParameterWire wire = ParameterWire::f32;  // type on the network
  int64_t block_size = 1024;                // of int8
  bool reshard_after_forward = true;        // false: values stay from the forward to the backward pass
  // Called in each gather of a step: on a GPU, where the checks of the gather are added. Null: the host waits for them.
  std::function<HostReads&()> checks = {};
};

// Gathers the values of a bucket when an operation reads one of its parameters. Releases them when an operation reads
// parameters of another bucket. During a step, the communication stream prefetches the next bucket. At most two buckets
// have memory, or as many as one operation reads. In the backward pass the scheduler calls release() with a bucket
// whose gradient is complete.
// Every gather is collective: in a step, all ranks of the group must read the same parameters in the same order; in
// read(), each rank reads what it needs. Prefetching follows the order of the last step; in the first step, from the
// last bucket to the first and back.
// On a GPU, values have memory of the computing thread's pool, and the thread's stream waits for a gather by an event.
// The host waits for the GPU only with groups whose kernels wait (Group::kernels_wait()): after each gather outside of
// steps, and in steps that do not overlap (Scheduler), which do not prefetch.
class ParameterShards {
 public:
  // `buckets`: sharded over the ranks of `group`, without memory of their own (BucketOptions::take_parameters). own:
  // own_bucket() of each. All must outlive this object; the scheduler is not used before the first call.
  ParameterShards(Buckets& buckets, std::vector<Bucket> own, std::shared_ptr<Group> group, Scheduler& scheduler,
                  const GatherOptions& options);
  ~ParameterShards();
  ParameterShards(const ParameterShards&) = delete;
  ParameterShards& operator=(const ParameterShards&) = delete;

  // This rank's shard of a bucket as a bucket: begin, numel, slots and param are those of the owned values, which are
  // read from the Vars. param has the size of the longest shard, a multiple of `alignment`; it has no gradient yet.
  static Bucket own_bucket(const Bucket& bucket, int64_t alignment);

  Buckets& own() { return own_; }  // the shards, for optimizers and averages
  Bucket& own_of(const Bucket& bucket) { return own_[bucket.index]; }  // this rank's shard of the bucket
  Group& group() { return *group_; }  // the ranks among which the parameters are divided

  void begin_step();                   // buckets are prefetched until end_step()
  void end_step();                     // after the last update; releases all values
  void release(const Bucket& bucket);  // after the last use of its values in a step
  void release_all();                  // outside of steps, also after a change of own values
  // Collective, outside of steps: calls f(bucket) for each bucket in turn while it holds the values of all shards, not
  // rounded. `store`: f may change them, equally on all ranks; each rank then keeps those of its shard.
  void for_each(const std::function<void(Bucket&)>& f, bool store);
  // Collective, outside of steps: calls f while all buckets have memory. rounded: with the values that operations read.
  // Otherwise the values are not rounded, and f may change them as in for_each().
  void with_all(bool rounded, const std::function<void()>& f);
  // Collective, outside of steps: calls f, which reads parameters and may differ between ranks: in what it reads, how
  // often, in which order. Each bucket is gathered when an operation reads it, and released when an operation reads
  // another one. A rank whose f has returned takes part in the gathers of the others until all have returned. rounded:
  // with the values that operations read in steps; otherwise the values are not rounded.
  void read(bool rounded, const std::function<void()>& f);

 private:
  struct State {
    Tensor memory = {};    // undefined while released
    int64_t ticket = 0;    // of the gather, for Scheduler::wait_for()
    Event gathered = {};   // its end; empty after the computing thread's stream has waited for it
    uint64_t used_in = 0;  // number of the operation that read the values last
  };
  void use(int64_t i);
  void use_in_read(int64_t i);
  int64_t gather_requested(int64_t wanted);
  void start(int64_t i);   // begins the gather
  void await(State& its);  // the calling thread's stream waits for the gather
  void drop(int64_t i);
  void evict(int64_t but);
  void expect_next();
  void look_ahead();
  bool evicts() const;
  void attach(Bucket& bucket);
  void check_idle() const;
  void gather(const Bucket& bucket, bool rounded, const Tensor& to);
  void store(const Bucket& bucket);
  State& state(int64_t i) { return states_[static_cast<size_t>(i)]; }

  Buckets& buckets_;
  Buckets own_;
  std::shared_ptr<Group> group_;
  Scheduler& scheduler_;
  GatherOptions options_;
  ShardedParameters wire_;
  std::vector<State> states_;
  std::vector<int64_t> order_, last_order_;  // buckets that were read in turn: in this step so far, in the last one
  int64_t current_ = -1, next_ = -1;         // bucket read last, and that expected next; -1: none
  int64_t resident_ = 0;                     // buckets with memory
  bool in_step_ = false;
  bool all_held_ = false;  // within for_each() or with_all()
  enum class Read { none, rounded, exact };
  Read read_ = Read::none;  // within read(): the values
};

}  // namespace godwit
