// Reverse-mode differentiation. A Var is a value and, if it requires a gradient, a node of the autograd graph.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "engine/tensor.h"

namespace godwit {

namespace detail {
struct Node;
}

// Accumulator for the gradient of one Var, captured by an op's backward. Null if the Var does not require a gradient.
//   if (dx) { Tensor g = dx.target(); relu_backward(device, y, dy, g); dx.add(g); }
class Gradient {
 public:
  Gradient() = default;
  explicit Gradient(std::shared_ptr<detail::Node> node) : node_(std::move(node)) {}  // for a node of the graph
  explicit operator bool() const { return node_ != nullptr; }  // false if the Var does not require a gradient

  // Memory of the Var's shape for writing (not adding) the gradient: a leaf's bound memory before its first
  // contribution, so that kernels write directly into the flat bucket; otherwise new memory.
  Tensor target() const;

  // Adds a contribution. A leaf copies or sums g into its memory, unless g is target(). Other nodes keep the first
  // contribution by reference, so g may be dy. Whoever holds the only reference (not shared()) may overwrite it.
  void add(const Tensor& g) const;

  // The sum of the contributions so far, for ops that add to it in place. Undefined for a leaf, without contributions,
  // and if the sum is shared; then use target() and add().
  Tensor accumulator() const;

  // The sum of all contributions so far, or zeros, for ops that add to few elements in place. Counts as a contribution.
  Tensor sum() const;

 private:
  friend class EarlyGradient;
  std::shared_ptr<detail::Node> node_;
};

// Memory for a gradient that an op computes in its forward pass. Null if the Var does not require a gradient.
//   const EarlyGradient dw(w.gradient());
//   if (dw) compute(dw.memory());                     // in the forward pass
//   … if (dw) dw.add(); …                             // in backward
class EarlyGradient {
 public:
  // Takes a leaf's bound memory before its first contribution, unless another EarlyGradient holds it; otherwise new
  // memory. If another contribution arrives before add(), the values move to new memory.
  explicit EarlyGradient(const Gradient& gradient);
  explicit operator bool() const { return memory_ != nullptr; }  // false if the Var does not require a gradient
  const Tensor& memory() const { return *memory_; }              // of the Var's shape, for writing the gradient
  void add() const;                                              // adds the values of memory() as a contribution

 private:
  Gradient gradient_;
  std::shared_ptr<Tensor> memory_;
};

// A variable; copies share value and gradient. The value may be rebound (to a view of a flat bucket) before use.
class Var {
 public:
  Var() = default;
  explicit Var(Tensor value, bool requires_grad = false);  // a leaf

  // The result of an op. `backward(dy)` adds to the inputs' gradients. It is discarded if no input requires a gradient
  // or gradients are disabled; otherwise it is released, with its captures, as soon as it has run.
  static Var result(Tensor value, const std::vector<Var>& inputs, std::function<void(const Tensor& dy)> backward);

  bool defined() const { return impl_ != nullptr; }  // whether it has a value
  const Tensor& value() const;  // shares the memory; computes a deferred value; calls the function of on_use()
  const Shape& shape() const { return tensor().shape(); }  // shape of the value
  int64_t dim(int i) const { return tensor().dim(i); }  // extent i
  DType dtype() const { return tensor().dtype(); }  // element type
  Device device() const { return tensor().device(); }  // where the value is stored
  bool requires_grad() const;  // whether backward() computes its gradient
  bool operator==(const Var& other) const { return impl_ == other.impl_; }  // the same variable (tied weights)
  Gradient gradient() const;  // for an op's backward; null while gradients are disabled

  // For leaves only:
  const Tensor& grad() const;               // undefined until rebind() or the first contribution gives it memory
  bool has_grad() const;                    // a contribution has arrived since clear_grad()
  // The next contribution overwrites, or the next forward pass with an EarlyGradient; the memory is kept.
  void clear_grad() const;
  // Call before writing to the memory of grad() other than through a Gradient: moves the values of an EarlyGradient to
  // other memory.
  void move_early_gradient() const;
  // Treats the current contents of the gradient memory as valid.
  void mark_grad_valid() const;
  // Binds the Var to other memory of the same shape and copies the value, unless `value` is detached. An undefined grad
  // is allocated by the first contribution.
  void rebind(Tensor value, Tensor grad) const;
  // Sets an allocator for the gradient, called when the first contribution arrives and no memory is bound. Null removes
  // the allocator of `owner`, any address; that of another owner stays.
  void set_grad_allocator(std::function<Tensor()> memory, const void* owner = nullptr) const;
  void release_grad() const;  // releases the memory; grad() is undefined until the next contribution
  // Sets a function that is called once per backward(), after the last contribution. Null: as in set_grad_allocator().
  void on_grad(std::function<void()> hook, const void* owner = nullptr) const;
  const void* grad_hook_owner() const;  // of the function of on_grad(); null if there is none

  // Writes the elements [begin, begin + part.numel()) of a value to `part`.
  using Fill = std::function<void(const Tensor& part, int64_t begin)>;
  // A leaf that requires a gradient and computes its values on first use. value() allocates and fills all values.
  static Var deferred(Shape shape, DType dtype, Fill fill);
  bool is_deferred() const;              // whether the values have not been computed yet
  void defer(Fill fill) const;           // replaces the values of a deferred leaf
  // Writes elements of the value to `part`, like Fill. Computes no other elements of a deferred leaf.
  void read(const Tensor& part, int64_t begin) const;

  // Sets a function that provides the values of a leaf. value() calls the function; so does backward() before each
  // operation with the leaf as an input, except recompute(). Vars that are views of the value call it too. Null: as in
  // set_grad_allocator().
  void on_use(std::function<void()> provide, const void* owner = nullptr) const;

 private:
  struct Impl;
  const Tensor& tensor() const;  // the value, whether or not it has memory
  std::shared_ptr<Impl> impl_;
  friend void backward(const Var& loss, double seed);
  friend Var recompute(const std::vector<Var>& inputs, const std::function<Var()>& f);
  friend bool wants_grad(const std::vector<Var>& inputs);
};

// True if gradients are enabled and an input requires one. Ops use it to skip work that only backward needs.
bool wants_grad(const std::vector<Var>& inputs);

// Returns f() without keeping its intermediate values. backward() calls f again when it arrives at the result, and
// passes through the graph of the second call. Gradients and the order of hooks are the same as without recompute().
// `inputs`: all variables with a gradient that f depends on; backward() throws if f depends on another one. Both calls
// must give the same value: f must not change its inputs, and must take random numbers from keys.
Var recompute(const std::vector<Var>& inputs, const std::function<Var()>& f);

// Adds the gradients of seed · loss to all leaves that the loss depends on. The loss must have one element. Nodes run
// in a fixed order, the reverse of creation. Each graph can be traversed only once.
void backward(const Var& loss, double seed = 1);

// For functions of Var::on_use(): number of operations, forward and backward, that the calling thread has finished.
uint64_t operations();

}  // namespace godwit
