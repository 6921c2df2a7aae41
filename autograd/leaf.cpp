#include "autograd/leaf.h"

#include <utility>

#include "autograd/node.h"

namespace godwit {

namespace {

// Sets a function and its owner. A null function removes the current one only if `owner` has set it.
template <class F>
void set_owned(F& f, const void*& f_owner, F given, const void* owner) {
  if (!given && f_owner != owner) return;
  f = std::move(given);
  f_owner = f ? owner : nullptr;
}

}  // namespace

void Leaf::move_early_gradient() const {
  if (var_.requires_grad()) detail::free_grad_memory(*var_.impl_->node);
}

void Leaf::mark_grad_valid() const {
  check(var_.requires_grad() && var_.grad().defined(), "mark_grad_valid: the Var has no memory for a gradient");
  move_early_gradient();
  var_.impl_->node->has_grad = true;
}

void Leaf::rebind(Tensor value, Tensor grad) const {
  check(var_.requires_grad() && var_.impl_->node->leaf(), "rebind: only leaves that require a gradient can be rebound");
  check_like(value, var_.impl_->value, "rebind", "value");
  if (grad.defined()) check_like(grad, var_.impl_->value, "rebind", "grad");
  if (value.attached()) read(value.view(Shape{value.numel()}), 0);
  var_.impl_->fill = nullptr;
  var_.impl_->value = std::move(value);
  move_early_gradient();
  var_.impl_->node->grad = std::move(grad);
  var_.impl_->node->has_grad = false;
}

void Leaf::set_grad_allocator(std::function<Tensor()> memory, const void* owner) const {
  check(var_.requires_grad() && var_.impl_->node->leaf(),
        "set_grad_allocator: only leaves that require a gradient have one");
  set_owned(var_.impl_->node->allocate_grad, var_.impl_->node->allocator_owner, std::move(memory), owner);
}

void Leaf::release_grad() const {
  var_.clear_grad();
  if (!var_.requires_grad()) return;
  var_.impl_->node->early.reset();
  var_.impl_->node->grad = Tensor();
}

void Leaf::on_grad(std::function<void()> hook, const void* owner) const {
  check(var_.requires_grad() && var_.impl_->node->leaf(), "on_grad: only leaves that require a gradient have hooks");
  set_owned(var_.impl_->node->hook, var_.impl_->node->hook_owner, std::move(hook), owner);
}

const void* Leaf::grad_hook_owner() const { return var_.requires_grad() ? var_.impl_->node->hook_owner : nullptr; }

Var Leaf::deferred(Shape shape, DType dtype, Fill fill) {
  Var var(Tensor::detached(shape, dtype), /*requires_grad=*/true);
  var.impl_->fill = std::move(fill);
  return var;
}

bool Leaf::is_deferred() const { return var_.defined() && var_.impl_->fill; }

void Leaf::defer(Fill fill) const {
  check(is_deferred(), "defer: the values of the Var exist already");
  var_.impl_->fill = std::move(fill);
}

void Leaf::read(const Tensor& part, int64_t begin) const {
  if (is_deferred()) return var_.impl_->fill(part, begin);
  part.copy_from(var_.value().range(begin, part.numel()));
}

void Leaf::on_use(std::function<void()> provide, const void* owner) const {
  check(var_.requires_grad() && var_.impl_->node->leaf(),
        "on_use: only leaves that require a gradient have such a function");
  auto shared = provide ? std::make_shared<const std::function<void()>>(std::move(provide)) : nullptr;
  set_owned(var_.impl_->provide, var_.impl_->provide_owner, std::move(shared), owner);
  var_.impl_->node->provide = var_.impl_->provide;
}

}  // namespace godwit
