#include "models/causal_lm.h"

#include "autograd/ops/cast.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/linear_cross_entropy.h"
#include "engine/context.h"
#include "engine/graph.h"

namespace godwit {

KeyValueCache::KeyValueCache(int64_t layers, int64_t capacity, int64_t width, DType dtype) : capacity_(capacity) {
  check(layers > 0 && capacity > 0 && width > 0, "key-value cache: layers, capacity and width must be positive, they ",
        "are ", layers, ", ", capacity, " and ", width);
  const Device device = context().device;
  for (int64_t i = 0; i < layers; ++i)
    keys_.emplace_back(Shape{capacity, width}, dtype, device),
        values_.emplace_back(Shape{capacity, width}, dtype, device);
}

std::pair<Tensor, Tensor> KeyValueCache::append(int64_t layer, const Tensor& keys, const Tensor& values) {
  const int64_t count = keys.dim(0);
  check(length_ + count <= capacity_, "key-value cache: ", length_ + count, " tokens exceed the capacity of ",
        capacity_);
  const Tensor &k = keys_[static_cast<size_t>(layer)], &v = values_[static_cast<size_t>(layer)];
  k.rows(length_, count).copy_from(keys);
  v.rows(length_, count).copy_from(values);
  return {k.rows(0, length_ + count), v.rows(0, length_ + count)};
}

Var CausalLM::logits(const Var& hidden) const {
  return ops::cast(ops::linear(hidden, output_weight()), compute_dtype(sizes_.dtype));
}

Var CausalLM::loss(const Var& hidden, const Tensor& labels, std::optional<int32_t> ignore) const {
  return ops::linear_cross_entropy(hidden, output_weight(), labels, ignore);
}

Var CausalLM::training_loss(const Tensor& ids, const Tensor& labels, const DropoutContext* dropout) const {
  return loss(forward(ids, dropout), labels);
}

KeyValueCache CausalLM::make_cache(int64_t capacity) const {
  check(capacity <= sizes_.positions, sizes_.name, ": a cache for ", capacity, " tokens exceeds ",
        sizes_.positions_field, " ", sizes_.positions);
  return {sizes_.layers, capacity, sizes_.key_width, sizes_.dtype};
}

// Loaders leave the ids on the CPU.
void CausalLM::check_ids(const Tensor& ids, int64_t first) const {
  check(ids.defined() && ids.dtype() == DType::i32 && ids.shape().rank() == 2 && ids.numel() > 0, sizes_.name,
        ": ids must be int32 [batch, length] and not empty",
        ids.defined() ? detail::concat(", got ", ids.dtype(), " ", ids.shape()) : "");
  const int64_t length = ids.dim(1);
  check(first + length <= sizes_.positions, sizes_.name, ": a text of ", first + length, " tokens exceeds ",
        sizes_.positions_field, " ", sizes_.positions);
  const auto all_known = [=, name = sizes_.name, limit = sizes_.vocab_size, here = ids.to(kCpu)] {
    const int32_t* id = here.data<int32_t>();
    for (int64_t i = 0; i < here.numel(); ++i)
      check(id[i] >= 0 && id[i] < limit, name, ": token [", i / length, ", ", i % length, "] is ", id[i],
            ", expected [0, vocab_size ", limit, ")");
  };
  all_known();
  on_replay(all_known);
}

void CausalLM::check_continuation(const Tensor& ids) const {
  check(!wants_grad({output_weight()}), sizes_.name,
        ": a key-value cache keeps no gradients; disable gradients (NoGrad)");
  check(ids.dim(0) == 1, sizes_.name, ": a key-value cache holds one text, ids are ", ids.shape());
}

void load_pretrained(const std::string& path, const CausalLM& model) { model.load(path); }
void save_pretrained(const std::string& folder, const CausalLM& model) { model.save(folder); }

}  // namespace godwit
