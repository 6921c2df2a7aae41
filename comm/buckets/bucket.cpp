#include "comm/buckets/bucket.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <unordered_set>

#include "autograd/leaf.h"
#include "engine/event.h"
#include "engine/hash.h"

namespace godwit {

// Released gradients on a GPU. Their memory returns to the pool of the backward stream after this stream has waited for
// the last use of the memory. The kNewest newest gradients may still be in flight, so allocations do not free them.
struct Buckets::ReleasedMemory {
  struct Memory {
    Tensor gradient;
    Event after;
  };
  static constexpr size_t kNewest = 3;

  std::mutex mutex;
  std::deque<Memory> all;

  // Frees all gradients except the newest `but`.
  void free(size_t but) {
    std::deque<Memory> freed;
    {
      std::lock_guard lock(mutex);
      for (; all.size() > but; all.pop_front()) freed.push_back(std::move(all.front()));
    }
    for (const Memory& memory : freed) memory.after.wait();
  }
};

namespace {

void check_parameter(const Parameter& parameter, DType dtype) {
  const Var& var = parameter.var;
  check(var.defined(), "buckets: parameter '", parameter.name, "' is undefined");
  check(var.requires_grad(), "buckets: parameter '", parameter.name, "' does not require a gradient");
  check(var.dtype() == DType::f32 || var.dtype() == DType::f64, "buckets: parameter '", parameter.name, "' is ",
        var.dtype(), "; parameters are float32 or float64");
  check(var.dtype() == dtype, "buckets: parameter '", parameter.name, "' is ", var.dtype(), ", the parameters before ",
        dtype, "; all must have one type");
}

// Each Var once, in order of registration.
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

void bind(Bucket& bucket, DType dtype, const BucketOptions& options) {
  const int64_t padded = (bucket.numel + options.alignment - 1) / options.alignment * options.alignment;
  const bool taken = options.take_parameters != nullptr;
  bucket.param = taken ? Tensor::detached({padded}, dtype) : Tensor::zeros({padded}, dtype);
  if (!options.on_demand_gradients) bucket.grad = Tensor::zeros({padded}, dtype);
  bucket.owned = {0, bucket.numel};
  if (taken) options.take_parameters(bucket);
  for (Slot& slot : bucket.slots) {
    const auto view = [&](const Tensor& x) {
      return x.defined() ? x.range(slot.offset, slot.numel).view(slot.var.shape()) : x;
    };
    Leaf(slot.var).rebind(view(bucket.param), view(bucket.grad));
  }
}

}  // namespace

std::vector<int> bucket_of_parameters(const std::vector<int64_t>& bytes, const BucketOptions& options) {
  check(options.first_bytes > 0 && options.bytes > 0, "buckets: sizes are ", options.first_bytes, " and ",
        options.bytes, " bytes; both must be positive");
  std::vector<int> result(bytes.size());
  int bucket = 0;
  int64_t filled = 0;
  for (size_t i = bytes.size(); i-- > 0;) {
    if (i + 1 < bytes.size() && filled + bytes[i] > (bucket == 0 ? options.first_bytes : options.bytes))
      ++bucket, filled = 0;
    filled += bytes[i];
    result[i] = bucket;
  }
  return result;
}

Buckets::Buckets(const std::vector<Parameter>& parameters, const BucketOptions& options) {
  check(options.alignment > 0, "buckets: the alignment is ", options.alignment, "; it must be positive");
  const std::vector<Parameter> all = distinct(parameters);
  const DType dtype = all[0].var.dtype();
  std::vector<int64_t> bytes;
  for (const Parameter& parameter : all) bytes.push_back(parameter.var.shape().numel() * size_of(dtype));
  const std::vector<int> bucket_of = bucket_of_parameters(bytes, options);
  for (size_t i = all.size(); i-- > 0;) {
    const Parameter& parameter = all[i];
    const int64_t numel = parameter.var.shape().numel();
    if (bucket_of[i] == std::ssize(buckets_)) buckets_.push_back({bucket_of[i], numel_, 0, {}, {}, {}, {}});
    Bucket& bucket = buckets_.back();
    bucket.slots.push_back({parameter.name, parameter.var, parameter.decay, bucket.numel, numel, parameter.layout});
    bucket.numel += numel;
    numel_ += numel;
  }
  for (Bucket& bucket : buckets_) bind(bucket, dtype, options);
  if (!options.on_demand_gradients) return;
  released_ = std::make_shared<ReleasedMemory>();
  for (Bucket& bucket : buckets_)  // the elements keep their addresses when Buckets is moved
    for (const Slot& slot : bucket.slots)
      Leaf(slot.var).set_grad_allocator(
          [released = released_, &bucket, &slot] {
            allocate(*released, bucket);
            return bucket.grad.range(slot.offset, slot.numel).view(slot.var.shape());
          },
          released_.get());
}

Buckets::Buckets(std::vector<Bucket> buckets) : buckets_(std::move(buckets)) {
  for (const Bucket& bucket : buckets_) numel_ += bucket.numel;
}

Buckets::~Buckets() {
  if (!released_) return;
  for (const Bucket& bucket : buckets_)
    for (const Slot& slot : bucket.slots) Leaf(slot.var).set_grad_allocator(nullptr, released_.get());
}

void Buckets::allocate(ReleasedMemory& released, Bucket& bucket) {
  if (bucket.grad.defined()) return;
  released.free(ReleasedMemory::kNewest);
  bucket.grad = Tensor({bucket.padded_numel()}, bucket.param.dtype(), bucket.param.device());
  bucket.grad.range(bucket.numel, bucket.padded_numel() - bucket.numel).zero();
}

void Buckets::acquire_gradient(Bucket& bucket) {
  if (released_) allocate(*released_, bucket);
}

void Buckets::release_gradient(Bucket& bucket) {
  if (!released_ || !bucket.grad.defined()) return;
  for (const Slot& slot : bucket.slots) Leaf(slot.var).release_grad();
  Tensor gradient = std::exchange(bucket.grad, Tensor());
  if (!gradient.device().is_cuda()) return;
  std::lock_guard lock(released_->mutex);
  released_->all.push_back({std::move(gradient), Event::record()});
}

void Buckets::free_gradients() {
  if (released_) released_->free(0);
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
