// Reverse-mode differentiation: Var is a value with, where one is wanted, a node of the graph behind it.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "engine/tensor.h"

namespace godwit {

namespace detail {
struct Node;
}

// Where the gradient of one Var is gathered; what an op's backward captures of its inputs. Empty when nobody wants it.
//   if (dx) { Tensor g = dx.target(); relu_backward(device, y, dy, g); dx.add(g); }
class Gradient {
 public:
  Gradient() = default;
  explicit Gradient(std::shared_ptr<detail::Node> node) : node_(std::move(node)) {}
  explicit operator bool() const { return node_ != nullptr; }

  // Memory of the Var's shape to write (not add) the gradient to: a leaf's own, when nothing is there yet, so that
  // kernels write straight into the flat bucket; fresh memory otherwise.
  Tensor target() const;

  // Adds a contribution. A leaf copies or sums it into its own memory, unless it is target() itself. Other nodes keep
  // the first contribution by reference, so g may be dy itself; whoever then holds g alone (not shared()) may write over it.
  void add(const Tensor& g) const;

  // The sum so far, zeros where there is none yet, for an op that adds in place to few of its elements. Counts as a
  // contribution.
  Tensor sum() const;

 private:
  std::shared_ptr<detail::Node> node_;
};

// A handle; copies share value and gradient. The value may be rebound (to a view of a flat bucket) before use.
class Var {
 public:
  Var() = default;
  explicit Var(Tensor value, bool requires_grad = false);

  // The result of an op. `backward(dy)` adds to the inputs' gradients; it is dropped when no input requires one or
  // gradients are off, and freed, with all it captured, as soon as it has run.
  static Var result(Tensor value, const std::vector<Var>& inputs, std::function<void(const Tensor& dy)> backward);

  bool defined() const { return impl_ != nullptr; }
  const Tensor& value() const;
  const Shape& shape() const { return value().shape(); }
  int64_t dim(int i) const { return value().dim(i); }
  DType dtype() const { return value().dtype(); }
  Device device() const { return value().device(); }
  bool requires_grad() const;
  bool operator==(const Var& other) const { return impl_ == other.impl_; }  // the same variable (tied weights)
  Gradient gradient() const;  // for an op's backward; empty while gradients are off

  // Leaves only:
  const Tensor& grad() const;               // undefined until the first contribution
  bool has_grad() const;                    // a contribution has come since clear_grad()
  void clear_grad() const;                  // the next contribution overwrites; memory is kept
  void mark_grad_valid() const;                   // what the gradient's memory holds is a contribution
  // To other memory of the same shape; copies the value over. An undefined grad is made by the first contribution.
  void rebind(Tensor value, Tensor grad) const;
  // Where memory of the gradient comes from, of the Var's shape, when a contribution finds none.
  void set_grad_allocator(std::function<Tensor()> memory) const;
  void release_grad() const;  // its memory: grad() is undefined until the next contribution
  void on_grad(std::function<void()> hook) const;  // called once per backward(), when the last contribution is in

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
  friend void backward(const Var& loss, double seed);
  friend bool wants_grad(const std::vector<Var>& inputs);
};

// True when gradients are on and some input requires one: ops use it to skip work only backward needs.
bool wants_grad(const std::vector<Var>& inputs);

// Gradients of seed · loss, which has one element, added to all leaves it depends on. Nodes run in one fixed order: the
// reverse of their creation. A graph can be walked once.
void backward(const Var& loss, double seed = 1);

}  // namespace godwit
