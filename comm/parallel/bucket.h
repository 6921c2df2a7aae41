// Buckets: all parameters of a model in a few flat tensors. Each bucket has one tensor of values and one of gradients;
// the Vars are views of them.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autograd/var.h"
#include "comm/segment.h"

namespace godwit {

struct Parameter {
  std::string name;  // as in the reference implementation: "layer1.0.conv1.weight"
  Var var;
  bool decay = true;  // weight decay applies
};

// A parameter's position in its bucket. Offsets are in elements.
struct Slot {
  std::string name;
  Var var;
  bool decay;
  int64_t offset;  // in the bucket
  int64_t numel;
};

struct Bucket {
  int index;
  int64_t begin;       // global offset of element 0, in the whole parameter vector without padding
  int64_t numel;       // without padding; [numel, param.numel()) is padding and stays zero
  Tensor param, grad;  // [padded], float32 or float64; with on_demand_gradients, grad is undefined while released
  std::vector<Slot> slots;
  Segment owned;  // elements this rank's optimizer updates and keeps state for: all of them unless state is sharded
  std::vector<Segment> shards = {};  // [world], the elements owned by each rank; empty if state is not sharded

  int64_t padded_numel() const { return param.numel(); }
};

struct BucketOptions {
  int64_t first_bytes = 1 << 20;  // of the first bucket; small, so that communication starts early
  int64_t bytes = 25 << 20;       // of the other buckets; a larger parameter gets its own bucket
  int64_t alignment = 32;         // padded sizes are multiples of this many elements: 32·workers·nodes
  bool on_demand_gradients = false;    // gradient memory exists only between acquire_gradient() and release_gradient()
};

// Lays the parameters out in reverse order of registration, which is the order in which backward completes them, and
// rebinds their Vars to views. A Var with two names gets one slot, under the first name. Movable, not copyable.
class Buckets {
 public:
  Buckets(const std::vector<Parameter>& parameters, const BucketOptions& options);
  Buckets(Buckets&&) = default;
  Buckets(const Buckets&) = delete;
  ~Buckets();

  int64_t size() const { return static_cast<int64_t>(buckets_.size()); }
  Bucket& operator[](int64_t i) { return buckets_[static_cast<size_t>(i)]; }
  const Bucket& operator[](int64_t i) const { return buckets_[static_cast<size_t>(i)]; }
  auto begin() { return buckets_.begin(); }
  auto end() { return buckets_.end(); }
  auto begin() const { return buckets_.begin(); }
  auto end() const { return buckets_.end(); }

  bool on_demand_gradients() const { return released_ != nullptr; }
  // Allocates the bucket's gradient if it has none; the first gradient contribution does so implicitly. The values are
  // unspecified, the padding is zero. Call on the thread that runs backward.
  void acquire_gradient(Bucket& bucket);
  // Releases the gradient after its last use; no effect without on_demand_gradients. Thread-safe for different buckets.
  void release_gradient(Bucket& bucket);
  // Returns released gradient memory to the pool. Call on the backward thread after all in-flight buckets have
  // finished.
  void free_gradients();

  int64_t numel() const { return numel_; }  // total number of parameters, without padding
  uint64_t layout_hash() const;             // of names, shapes, types, decay and order; independent of bucket sizes
  uint64_t value_hash() const;              // of all parameter values, bit by bit; equal on replicas

 private:
  struct ReleasedMemory;
  static void allocate(ReleasedMemory& released, Bucket& bucket);

  std::vector<Bucket> buckets_;
  int64_t numel_ = 0;
  std::shared_ptr<ReleasedMemory> released_;  // null without on_demand_gradients
};

// Consecutive elements [begin, end) of a bucket with one weight-decay setting. Adjacent equal ranges are merged;
// padding is excluded.
struct DecayRange {
  int64_t begin, end;
  bool decay;
};
std::vector<DecayRange> decay_ranges(const Bucket& bucket);

}  // namespace godwit
