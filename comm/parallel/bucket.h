// Buckets: all parameters of a model in a few flat tensors. Each bucket has one tensor of values and one of gradients;
// the Vars are views of them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/var.h"
#include "comm/segment.h"
#include "engine/file_layout.h"

namespace godwit {

// A named parameter of a model.
struct Parameter {
  std::string name;   // as in the reference implementation: "layer1.0.conv1.weight"
  Var var;            // value and gradient
  bool decay = true;  // weight decay applies
  FileLayout layout = FileLayout::as_in_memory;  // in weight files and checkpoints
};

// A parameter's position in its bucket. Offsets are in elements.
struct Slot {
  std::string name;  // of the parameter
  Var var;           // view of the bucket
  bool decay;        // weight decay applies
  int64_t offset;    // in the bucket
  int64_t numel;     // number of elements
  FileLayout layout;  // in checkpoints
};

// Parameters, one after another in a flat tensor.
struct Bucket {
  int index;  // position in Buckets
  int64_t begin;       // global offset of element 0, in the whole parameter vector without padding
  int64_t numel;       // without padding; [numel, param.numel()) is padding and stays zero
  Tensor param, grad;  // [padded], float32 or float64; with on_demand_gradients, grad is undefined while released
  std::vector<Slot> slots;  // of the parameters, by offset
  Segment owned;  // elements this rank's optimizer updates and keeps state for: all of them unless state is sharded
  std::vector<Segment> shards = {};  // [world], the elements owned by each rank; empty if state is not sharded

  int64_t padded_numel() const { return param.numel(); }  // number of elements with padding
};

// Sizes of buckets, and memory of gradients and parameters.
struct BucketOptions {
  int64_t first_bytes = 1 << 20;  // of the first bucket; small, so that communication starts early
  int64_t bytes = 25 << 20;       // of the other buckets; a larger parameter gets its own bucket
  int64_t alignment = 32;         // padded sizes are multiples of this many elements; DataParallel: 32·workers·nodes
  bool on_demand_gradients = false;    // gradient memory exists only between acquire_gradient() and release_gradient()
  // Called with each bucket before its Vars become views of param, so that the caller can copy values (Var::read()).
  // param then has no memory (Tensor::detached()). Null: param has memory and all values.
  std::function<void(Bucket&)> take_parameters = nullptr;
};

// Returns the bucket of each parameter; `bytes`: sizes of the parameters, in order of registration.
std::vector<int> bucket_of_parameters(const std::vector<int64_t>& bytes, const BucketOptions& options);

// Lays the parameters out in reverse order of registration, which is the order in which backward completes them, and
// rebinds their Vars to views. A Var with two names gets one slot, under the first name. Movable, not copyable.
class Buckets {
 public:
  // Throws if there are no parameters, if two have the same name, if one is undefined or requires no gradient, if the
  // parameters are not all float32 or all float64, or if a size in `options` is not positive.
  Buckets(const std::vector<Parameter>& parameters, const BucketOptions& options);
  explicit Buckets(std::vector<Bucket> buckets);  // takes complete buckets; rebinds no Var
  Buckets(Buckets&&) = default;
  Buckets(const Buckets&) = delete;
  ~Buckets();

  int64_t size() const { return static_cast<int64_t>(buckets_.size()); }  // number of buckets
  // Bucket i, in the order in which backward completes them.
  Bucket& operator[](int64_t i) { return buckets_[static_cast<size_t>(i)]; }
  const Bucket& operator[](int64_t i) const { return buckets_[static_cast<size_t>(i)]; }
  auto begin() { return buckets_.begin(); }        // first bucket
  auto end() { return buckets_.end(); }            // end of the buckets
  auto begin() const { return buckets_.begin(); }  // first bucket
  auto end() const { return buckets_.end(); }      // end of the buckets

  bool on_demand_gradients() const { return released_ != nullptr; }  // whether gradients are allocated on demand
  // Allocates the bucket's gradient if it has none, as the first gradient contribution does. The values are
  // unspecified, the padding is zero. Call on the thread that runs backward.
  void acquire_gradient(Bucket& bucket);
  // Releases the gradient after its last use; no effect without on_demand_gradients. Thread-safe for different buckets.
  void release_gradient(Bucket& bucket);
  // Returns released gradient memory to the pool. Call on the backward thread after all in-flight buckets have
  // finished.
  void free_gradients();

  int64_t numel() const { return numel_; }  // total number of parameters, without padding
  uint64_t layout_hash() const;             // of names, shapes, types, decay and order; independent of bucket sizes
  uint64_t value_hash() const;              // of all parameter values, bit by bit; equal on replicas, not if sharded

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
  int64_t begin, end;  // see above
  bool decay;          // weight decay applies
};
// The ranges of a bucket, in order.
std::vector<DecayRange> decay_ranges(const Bucket& bucket);

}  // namespace godwit
