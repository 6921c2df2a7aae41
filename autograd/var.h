// Reverse-mode differentiation. A Var has a value and, if it requires a gradient, a node of the autograd graph.
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

  // Memory of the Var's shape, to which an op writes its gradient before add(). For a leaf without a contribution,
  // returns the leaf's bound memory, so that kernels write directly into the bucket; otherwise returns new memory.
  Tensor target() const;

  // Adds a contribution. A leaf copies or sums g into its memory, unless g is target(). Other nodes keep the first
  // contribution by reference, so g may be dy. The holder of the only reference (not shared()) may overwrite g.
  void add(const Tensor& g) const;

  // The sum of the contributions so far, for ops that add to the sum in place. Undefined for a leaf, if there are no
  // contributions, and if the sum is shared; use target() and add() in these cases.
  Tensor accumulator() const;

  // The sum of all contributions so far, or zeros, for ops that add to few elements in place. The call counts as a
  // contribution.
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
  // Takes a leaf's bound memory before the leaf's first contribution, unless another EarlyGradient holds that memory.
  // In all other cases, allocates new memory. If another contribution arrives before add(), the values move to new
  // memory.
  explicit EarlyGradient(const Gradient& gradient);
  explicit operator bool() const { return memory_ != nullptr; }  // false if the Var does not require a gradient
  const Tensor& memory() const { return *memory_; }              // has the Var's shape, for writing the gradient
  void add() const;                                              // adds the values of memory() as a contribution

 private:
  Gradient gradient_;
  std::shared_ptr<Tensor> memory_;
};

// A variable. Copies share value and gradient. Buckets and ZeRO-3 control the memory of leaves with Leaf.
class Var {
 public:
  Var() = default;
  explicit Var(Tensor value, bool requires_grad = false);  // a leaf

  // The result of an op. `backward(dy)` adds to the inputs' gradients. The function is discarded at once if no input
  // requires a gradient or gradients are disabled; otherwise, it and its captures are released after it has run.
  static Var result(Tensor value, const std::vector<Var>& inputs, std::function<void(const Tensor& dy)> backward);

  bool defined() const { return impl_ != nullptr; }  // whether the Var has a value
  const Tensor& value() const;  // shares the memory; if a Leaf has no values yet, computes them
  const Shape& shape() const { return tensor().shape(); }  // shape of the value
  int64_t dim(int i) const { return tensor().dim(i); }  // extent i
  DType dtype() const { return tensor().dtype(); }  // element type
  Device device() const { return tensor().device(); }  // where the value is stored
  bool requires_grad() const;  // whether backward() computes a gradient for this Var
  bool operator==(const Var& other) const { return impl_ == other.impl_; }  // true for tied weights
  Gradient gradient() const;  // for an op's backward; null while gradients are disabled

  // For leaves only:
  const Tensor& grad() const;               // undefined before the first contribution, unless memory is bound
  bool has_grad() const;                    // whether a contribution has arrived since clear_grad()
  // Discards the values but keeps the memory. The next contribution, or the next forward pass with an EarlyGradient,
  // overwrites the memory.
  void clear_grad() const;
 private:
  struct Impl;
  const Tensor& tensor() const;  // the value, whether or not it has memory
  std::shared_ptr<Impl> impl_;
  friend class Leaf;
  friend void backward(const Var& loss, double seed);
  friend Var recompute(const std::vector<Var>& inputs, const std::function<Var()>& f);
  friend bool wants_grad(const std::vector<Var>& inputs);
};

// True if gradients are enabled and an input requires one. Ops use this function to skip work that only backward needs.
bool wants_grad(const std::vector<Var>& inputs);

// Returns f() without keeping its intermediate values. When backward() arrives at the result, it calls f again and
// traverses the graph of the second call. Gradients and the order of hooks are the same as without recompute().
// `inputs` are all variables with a gradient on which f depends; backward() throws if f depends on another variable
// with a gradient. Both calls must give the same value: f must not change its inputs, and must take random numbers from
// keys.
Var recompute(const std::vector<Var>& inputs, const std::function<Var()>& f);

// Adds the gradients of seed · loss to all leaves on which the loss depends. The loss must have one element. Nodes run
// in a fixed order, the reverse of their creation. Each graph can be traversed only once.
void backward(const Var& loss, double seed = 1);

// Number of operations, forward and backward, that the calling thread has finished. For functions of Leaf::on_use().
uint64_t operations();

}  // namespace godwit
