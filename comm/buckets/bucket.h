// Buckets: all parameters of a model in a few flat tensors. Each bucket has one tensor of values and one of gradients.
// The parameters' Vars are views of these tensors.
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
  std::string name;   // name in the reference implementation: "layer1.0.conv1.weight"
  Var var;            // value and gradient
  bool decay = true;  // whether weight decay applies
  FileLayout layout = FileLayout::as_in_memory;  // layout in weight files and checkpoints
};

// A parameter's position in its bucket. Offsets are in elements.
struct Slot {
  std::string name;  // name of the parameter
  Var var;           // view of the bucket
  bool decay;        // whether weight decay applies
  int64_t offset;    // first element in the bucket
  int64_t numel;     // number of elements
  FileLayout layout;  // layout in checkpoints
};

// Consecutive parameters in a flat tensor.
struct Bucket {
  int index;  // position in Buckets
  int64_t begin;       // global offset of element 0: its index in the whole parameter vector without padding
  int64_t numel;       // number of elements without padding; [numel, param.numel()) is padding and stays zero
  // [padded_numel], float32 or float64; with on_demand_gradients, grad is undefined while it is released.
  Tensor param, grad;
  std::vector<Slot> slots;  // the parameters, ordered by offset
  Segment owned;  // elements that this rank's optimizer updates; all elements unless state is sharded
  std::vector<Segment> shards = {};  // [world]: the elements that each rank owns; empty if state is not sharded

  int64_t padded_numel() const { return param.numel(); }  // number of elements with padding
};

// Options for bucket sizes and for the memory of gradients and parameters.
struct BucketOptions {
  int64_t first_bytes = 1 << 20;  // size of the first bucket; small, so that communication starts early
  int64_t bytes = 25 << 20;       // size of the other buckets; a larger parameter gets a separate bucket
  int64_t alignment = 32;         // padded sizes are multiples of this many elements; DataParallel: 32·workers·nodes
  bool on_demand_gradients = false;    // gradient memory exists only between acquire_gradient() and release_gradient()
  // Called with each bucket before its Vars become views of param, so that the caller can copy values (Leaf::read()).
  // param then has no memory (Tensor::detached()). If null, param has memory and contains all values.
  std::function<void(Bucket&)> take_parameters = nullptr;
};

// Returns the bucket index of each parameter. `bytes`: sizes of the parameters, in order of registration.
std::vector<int> bucket_of_parameters(const std::vector<int64_t>& bytes, const BucketOptions& options);

// Places the parameters in reverse order of registration, which is the order in which backward completes them. Rebinds
// their Vars to views of the buckets. A Var with two names gets one slot, under the first name. Movable, not copyable.
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
  // Allocates the bucket's gradient if it has none; the first gradient contribution also allocates it. The values are
  // unspecified; the padding is zero. Must be called on the thread that runs backward.
  void acquire_gradient(Bucket& bucket);
  // Releases the gradient after its last use. No effect without on_demand_gradients. Thread-safe for different buckets.
  void release_gradient(Bucket& bucket);
  // Returns released gradient memory to the pool. Must be called on the backward thread after all in-flight buckets
  // have finished.
  void free_gradients();

  int64_t numel() const { return numel_; }  // total number of parameters, without padding
  uint64_t layout_hash() const;             // hash of names, shapes, types, decay, order; independent of bucket sizes
  uint64_t value_hash() const;              // hash of all parameter bits; equal on replicas, but not if sharded

 private:
  struct ReleasedMemory;
  static void allocate(ReleasedMemory& released, Bucket& bucket);

  std::vector<Bucket> buckets_;
  int64_t numel_ = 0;
  std::shared_ptr<ReleasedMemory> released_;  // null without on_demand_gradients
};

// Consecutive elements [begin, end) of a bucket with one weight-decay setting. Adjacent ranges with the same setting
// are merged. Padding is excluded.
struct DecayRange {
  int64_t begin, end;  // range of elements
  bool decay;          // whether weight decay applies
};
// The ranges of a bucket, in order.
std::vector<DecayRange> decay_ranges(const Bucket& bucket);

}  // namespace godwit
