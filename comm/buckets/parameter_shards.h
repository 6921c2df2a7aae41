// ZeRO-3: each rank keeps its shard of every bucket's parameters. The other values of a bucket have memory only while
// operations read the bucket.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "comm/buckets/scheduler.h"
#include "comm/buckets/sharding.h"
#include "engine/event.h"
#include "engine/host_reads.h"

namespace godwit {

// How parameters are gathered.
struct GatherOptions {
  ParameterWire wire = ParameterWire::f32;  // type on the network
  int64_t block_size = 1024;                // values per scale for int8
  bool reshard_after_forward = true;        // false: values stay from the forward to the backward pass
  // Called on the communication thread in each gather of a step. On a GPU, the checks of the gather are added to the
  // returned HostReads. If null, the host waits for these checks.
  std::function<HostReads&()> checks = {};
};

// Gathers the values of a bucket when an operation reads one of its parameters. Releases them when an operation reads
// parameters of another bucket. At most two buckets have memory, or as many as one operation reads. Without
// reshard_after_forward, values stay until release(), which Scheduler::on_complete() must call.
//
// Every gather is collective. In a step, all ranks of the group must read the same parameters in the same order. In
// read(), ranks may read different parameters.
//
// During a step, the communication stream prefetches the next bucket, in the order of the last step. In the first step,
// the order is from the last bucket to the first and back.
//
// On a GPU, values use memory of the computing thread's pool, and the thread's stream waits for a gather with an event.
// The host waits for the GPU only with NCCL (Group::collectives_are_kernels()): after each gather outside of steps, and
// in steps that do not overlap (Scheduler). Such steps do not prefetch.
class ParameterShards {
 public:
  // `buckets`: sharded over the ranks of `group`, without memory (BucketOptions::take_parameters). `own`: own_bucket()
  // of each bucket. `buckets` must outlive this object. The scheduler may be constructed later. It must be destroyed
  // before this object, because its tasks use this object.
  ParameterShards(Buckets& buckets, std::vector<Bucket> own, std::shared_ptr<Group> group, Scheduler& scheduler,
                  const GatherOptions& options);
  ~ParameterShards();
  ParameterShards(const ParameterShards&) = delete;
  ParameterShards& operator=(const ParameterShards&) = delete;

  // Returns this rank's shard of a bucket as a bucket. begin, numel, slots and param describe the owned values, which
  // are read from the Vars. param has padded / ranks values if has_regular_shards(), otherwise the length of the
  // longest shard rounded up to a multiple of `alignment`. grad is undefined.
  static Bucket own_bucket(const Bucket& bucket, int64_t alignment);

  Buckets& own() { return own_; }  // the shards, for optimizers and averages
  Bucket& own_of(const Bucket& bucket) { return own_[bucket.index]; }  // this rank's shard of the bucket
  Group& group() { return *group_; }  // the ranks that share the parameters

  void begin_step();                   // prefetches buckets until end_step()
  void end_step();                     // releases all values; must be called after the last update
  void release(const Bucket& bucket);  // must be called after the last use of the bucket's values in a step
  void release_all();                  // must be called outside of steps, also after a change of own values
  // Collective, outside of steps. Calls f(bucket) for each bucket in turn while the bucket holds the exact values of
  // all shards. With `store`, f may change the values, identically on all ranks, and each rank keeps its shard of the
  // changed values.
  void for_each(const std::function<void(Bucket&)>& f, bool store);
  // Collective, outside of steps. Calls f while all buckets hold the values of all shards. With `rounded`, the values
  // have the precision of the wire, as operations read them in steps. Otherwise the values are exact, and f may change
  // them as in for_each() with `store`. If f throws, the changes are lost.
  void with_all(bool rounded, const std::function<void()>& f);
  // Collective, outside of steps. Calls f, which may read different parameters on each rank, in any number and order. A
  // bucket is gathered when an operation reads it, and released when an operation reads another bucket. A rank whose f
  // has returned takes part in the gathers of the other ranks until f has returned on all ranks. `rounded`: as in
  // with_all().
  void read(bool rounded, const std::function<void()>& f);

 private:
  struct State {
    Tensor memory = {};    // undefined while released
    int64_t ticket = 0;    // ticket of the gather, for Scheduler::wait_for()
    Event gathered = {};   // end of the gather; empty after the computing thread's stream has waited for it
    uint64_t used_in = 0;  // number of the operation that last read the values
  };
  void use(int64_t i);
  void use_in_read(int64_t i);
  int64_t gather_requested(int64_t wanted);
  void start(int64_t i);   // begins the gather
  void await(State& its);  // makes the calling thread's stream wait for the gather
  void drop(int64_t i);
  void evict(int64_t but);
  void expect_next();
  void prefetch_next();
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
  ParameterGather wire_;
  std::vector<State> states_;
  std::vector<int64_t> order_, last_order_;  // buckets in the order of reads: in this step so far, and in the last step
  int64_t current_ = -1, next_ = -1;         // bucket read last, and bucket expected next; -1: none
  int64_t resident_ = 0;                     // number of buckets with memory
  bool in_step_ = false;
  bool all_held_ = false;  // true within for_each() and with_all()
  enum class Read { none, rounded, exact };
  Read read_ = Read::none;  // kind of values within read()
};

}  // namespace godwit
