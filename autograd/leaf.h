// Leaf: control of a leaf's memory and hooks, for buckets, the scheduler and ZeRO-3.
#pragma once
#include <cstdint>
#include <functional>
#include <utility>

#include "autograd/var.h"

namespace godwit {

// Refers to a Var, which must be a leaf that requires a gradient.
class Leaf {
 public:
  explicit Leaf(Var var) : var_(std::move(var)) {}  // keeps a reference

  // Binds the Var to other memory of the same shape, such as a view of a bucket. Copies the value, unless `value` is
  // detached. If `grad` is undefined, the first contribution allocates the gradient.
  void rebind(Tensor value, Tensor grad) const;

  // Treats the current contents of the gradient memory as valid.
  void mark_grad_valid() const;
  // Moves the values of an EarlyGradient out of the memory of grad(). Must be called before code other than a Gradient
  // writes this memory.
  void move_early_gradient() const;
  // Sets an allocator for the gradient, called when the first contribution arrives and no memory is bound. Null removes
  // the allocator that was set with the same `owner` (any address). The allocator of another owner stays.
  void set_grad_allocator(std::function<Tensor()> memory, const void* owner = nullptr) const;
  void release_grad() const;  // releases the gradient memory; grad() is undefined until the next contribution
  // Sets a function that is called once per backward(), after the last contribution. Null removes the function of the
  // same `owner`.
  void on_grad(std::function<void()> hook, const void* owner = nullptr) const;
  const void* grad_hook_owner() const;  // owner of the function of on_grad(); null if there is none

  // A function that writes the elements [begin, begin + part.numel()) of a value to `part`.
  using Fill = std::function<void(const Tensor& part, int64_t begin)>;
  // A leaf that requires a gradient and computes its values on first use. Var::value() allocates memory and fills it
  // completely.
  static Var deferred(Shape shape, DType dtype, Fill fill);
  bool is_deferred() const;     // whether the values have not been computed yet
  void defer(Fill fill) const;  // replaces the function of a deferred leaf
  // Writes elements of the value to `part`, like Fill. The other elements of a deferred leaf are not computed.
  void read(const Tensor& part, int64_t begin) const;

  // Sets a function that provides the values of a leaf. The function is called by Var::value(), also of Vars that are
  // views of the leaf, and by backward() before each operation with the leaf as an input, except recompute(). Null
  // removes the function of the same `owner`.
  void on_use(std::function<void()> provide, const void* owner = nullptr) const;

 private:
  Var var_;
};

}  // namespace godwit
