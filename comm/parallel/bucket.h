// Buckets: all parameters of a model, flat. Values and gradients of a bucket are one tensor each; Vars are views of
// them.
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

// One parameter's place. Offsets are in elements.
struct Slot {
  std::string name;
  Var var;
  bool decay;
  int64_t offset;  // in the bucket
  int64_t numel;
};

struct Bucket {
  int index;
  int64_t begin;       // global offset (in the whole parameter vector, padding not counted) of element 0
  int64_t numel;       // real elements; the rest of [numel, param.numel()) is padding and stays zero
  Tensor param, grad;  // [padded], float32 or float64; where gradients are lent, grad is undefined meanwhile
  std::vector<Slot> slots;
  Segment owned;  // what this rank's optimizer keeps state of and updates: all real elements, unless state is sharded
  std::vector<Segment> shards = {};  // what each rank of the world owns; empty: state is not sharded

  int64_t padded() const { return param.numel(); }
};

struct BucketOptions {
  int64_t first_bytes = 1 << 20;  // small, so that communication starts early
  int64_t bytes = 25 << 20;       // of the others; a parameter above it has a bucket alone
  int64_t alignment = 32;         // padded sizes are multiples of it: 32·workers·nodes
  bool lent_gradients = false;    // their memory is taken for the time between take_gradient() and return_gradient()
};

// Lays the parameters out in reverse order of registration (the order in which backward completes them) and rebinds
// their Vars to views. A Var that appears under two names has one slot, under the first name. Movable, not copyable.
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

  bool lent_gradients() const { return returned_ != nullptr; }
  // Memory for the bucket's gradient, if it has none: its first contribution takes it by itself. What it holds is not
  // specified, but for the padding. On the thread that runs backward.
  void take_gradient(Bucket& bucket);
  // After its last use, on any thread. Without lent gradients, nothing.
  void return_gradient(Bucket& bucket);
  // What was returned is free for any use. On the thread that runs backward, after waiting for all others.
  void free_gradients();

  int64_t numel() const { return numel_; }  // d, without padding
  uint64_t layout_hash() const;             // of names, shapes, types, decay and order; not of bucket sizes
  uint64_t value_hash() const;              // of the parameters' bits; equal on replicas

 private:
  struct Returned;
  static void lend(Returned& returned, Bucket& bucket);

  std::vector<Bucket> buckets_;
  int64_t numel_ = 0;
  std::shared_ptr<Returned> returned_;  // null: gradients keep their memory
};

// Contiguous elements [begin, end) of a bucket with one weight-decay setting; neighbours merged, padding left out.
struct DecayRange {
  int64_t begin, end;
  bool decay;
};
std::vector<DecayRange> decay_ranges(const Bucket& bucket);

}  // namespace godwit
