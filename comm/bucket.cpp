#include "comm/bucket.h"

#include <algorithm>
#include <unordered_set>

#include "engine/hash.h"

namespace godwit {
namespace {

void check_parameter(const Parameter& parameter, DType dtype) {
  const Var& var = parameter.var;
  check(var.defined(), "buckets: parameter '", parameter.name, "' is undefined");
  check(var.requires_grad(), "buckets: parameter '", parameter.name, "' does not require a gradient");
  check(var.dtype() == DType::f32 || var.dtype() == DType::f64, "buckets: parameter '", parameter.name, "' is ",
        var.dtype(), "; parameters are float32 or float64");
  check(var.dtype() == dtype, "buckets: parameter '", parameter.name, "' is ", var.dtype(), ", the ones before it ",
        dtype, "; all must be of one type");
}

// Every Var once, in order of registration.
std::vector<Parameter> distinct(const std::vector<Parameter>& parameters) {
  check(!parameters.empty(), "buckets: the model has no parameters");
  std::unordered_set<std::string> names;
  std::vector<Parameter> result;
  for (const Parameter& parameter : parameters) {
    check(names.insert(parameter.name).second, "buckets: two parameters are named '", parameter.name, "'");
    check_parameter(parameter, parameters[0].var.defined() ? parameters[0].var.dtype() : DType::f32);
    const bool tied =
        std::any_of(result.begin(), result.end(), [&](const Parameter& p) { return p.var == parameter.var; });
    if (!tied) result.push_back(parameter);
  }
  return result;
}

void bind(Bucket& bucket, DType dtype, int64_t alignment) {
  const int64_t padded = (bucket.numel + alignment - 1) / alignment * alignment;
  bucket.param = Tensor::zeros({padded}, dtype);
  bucket.grad = Tensor::zeros({padded}, dtype);
  bucket.owned = {0, bucket.numel};
  for (Slot& slot : bucket.slots) {
    const Shape shape = slot.var.shape();
    slot.var.rebind(bucket.param.range(slot.offset, slot.numel).view(shape),
                    bucket.grad.range(slot.offset, slot.numel).view(shape));
  }
}

}  // namespace

Buckets::Buckets(const std::vector<Parameter>& parameters, const BucketOptions& options) {
  check(options.first_bytes > 0 && options.bytes > 0, "buckets: sizes are ", options.first_bytes, " and ",
        options.bytes, " bytes; both must be positive");
  check(options.alignment > 0, "buckets: the alignment is ", options.alignment, "; it must be positive");
  std::vector<Parameter> ordered = distinct(parameters);
  std::reverse(ordered.begin(), ordered.end());
  const DType dtype = ordered[0].var.dtype();
  for (const Parameter& parameter : ordered) {
    const int64_t numel = parameter.var.value().numel();
    const int64_t cap = (buckets_.size() <= 1 ? options.first_bytes : options.bytes) / size_of(dtype);
    if (buckets_.empty() || buckets_.back().numel + numel > cap)
      buckets_.push_back({static_cast<int>(buckets_.size()), numel_, 0, {}, {}, {}, {}});
    Bucket& bucket = buckets_.back();
    bucket.slots.push_back({parameter.name, parameter.var, parameter.decay, bucket.numel, numel});
    bucket.numel += numel;
    numel_ += numel;
  }
  for (Bucket& bucket : buckets_) bind(bucket, dtype, options.alignment);
}

uint64_t Buckets::layout_hash() const {
  Hash hash;
  for (const Bucket& bucket : buckets_)
    for (const Slot& slot : bucket.slots) {
      hash.add(slot.name);
      hash.add(static_cast<uint64_t>(slot.var.shape().rank()));
      for (int64_t extent : slot.var.shape()) hash.add(static_cast<uint64_t>(extent));
      hash.add(static_cast<uint64_t>(slot.var.dtype()));
      hash.add(static_cast<uint64_t>(slot.decay));
    }
  return hash.value();
}

uint64_t Buckets::value_hash() const {
  Hash hash;
  for (const Bucket& bucket : buckets_) hash.add(bucket.param, bucket.numel);
  return hash.value();
}

std::vector<DecayRange> decay_ranges(const Bucket& bucket) {
  std::vector<DecayRange> ranges;
  for (const Slot& slot : bucket.slots) {
    if (slot.numel == 0) continue;
    if (!ranges.empty() && ranges.back().decay == slot.decay) ranges.back().end += slot.numel;
    else ranges.push_back({slot.offset, slot.offset + slot.numel, slot.decay});
  }
  return ranges;
}

}  // namespace godwit
