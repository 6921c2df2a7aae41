// Buckets: all parameters of a model, flat. Values and gradients of a bucket are one tensor each; Vars are views of
// them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "autograd/var.h"

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

// Elements [begin, end) of a bucket.
struct Segment {
  int64_t begin = 0, end = 0;
  int64_t numel() const { return end - begin; }
};

struct Bucket {
  int index;
  int64_t begin;       // global offset (in the whole parameter vector, padding not counted) of element 0
  int64_t numel;       // real elements; the rest of [numel, param.numel()) is padding and stays zero
  Tensor param, grad;  // [padded], float32 or float64
  std::vector<Slot> slots;
  Segment owned;  // what this rank's optimizer keeps state of and updates: all real elements, unless state is sharded
  std::vector<Segment> shards = {};  // what each rank of the world owns; empty: state is not sharded

  int64_t padded() const { return param.numel(); }
};

struct BucketOptions {
  int64_t first_bytes = 1 << 20;  // small, so that communication starts early
  int64_t bytes = 25 << 20;       // of the others; a parameter above it has a bucket alone
  int64_t alignment = 32;         // padded sizes are multiples of it: 32·workers·nodes
};

// Lays the parameters out in reverse order of registration (the order in which backward completes them) and rebinds
// their Vars to views. A Var that appears under two names has one slot, under the first name. Movable, not copyable.
class Buckets {
 public:
  Buckets(const std::vector<Parameter>& parameters, const BucketOptions& options);
  Buckets(Buckets&&) = default;
  Buckets(const Buckets&) = delete;

  int64_t size() const { return static_cast<int64_t>(buckets_.size()); }
  Bucket& operator[](int64_t i) { return buckets_[static_cast<size_t>(i)]; }
  const Bucket& operator[](int64_t i) const { return buckets_[static_cast<size_t>(i)]; }
  auto begin() { return buckets_.begin(); }
  auto end() { return buckets_.end(); }
  auto begin() const { return buckets_.begin(); }
  auto end() const { return buckets_.end(); }

  int64_t numel() const { return numel_; }  // d, without padding
  uint64_t layout_hash() const;             // of names, shapes, types, decay and order; not of bucket sizes
  uint64_t value_hash() const;              // of the parameters' bits; equal on replicas

 private:
  std::vector<Bucket> buckets_;
  int64_t numel_ = 0;
};

// Contiguous elements [begin, end) of a bucket with one weight-decay setting; neighbours merged, padding left out.
struct DecayRange {
  int64_t begin, end;
  bool decay;
};
std::vector<DecayRange> decay_ranges(const Bucket& bucket);

}  // namespace godwit
