// Nodes of the autograd graph. Only the sources of autograd/var.h and autograd/leaf.h include this header.
#pragma once
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/leaf.h"

namespace godwit {

namespace detail {

// A variable that requires a gradient.
struct Node {
  Shape shape;
  DType dtype;
  Device device;
  uint64_t order;  // creation order; backward runs from high to low
  Tensor grad;
  bool has_grad = false;
  std::vector<std::shared_ptr<Node>> inputs;
  std::function<void(const Tensor&)> backward;  // empty for leaves and for results of recompute()
  std::function<Var()> again;                   // recompute() only: the function
  std::function<void()> hook;                   // leaves only
  std::function<Tensor()> allocate_grad;        // leaves only: allocates grad
  const void *hook_owner = nullptr, *allocator_owner = nullptr;
  std::weak_ptr<Tensor> early = {};  // leaves only: memory() of the EarlyGradient that has taken the memory of grad
  std::shared_ptr<const std::function<void()>> provide = nullptr;  // Leaf::on_use()
  bool leaf() const { return !walked && !backward && !again; }
  bool walked = false;  // true for an op's node after its backward has run

  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();
};

// Moves the values of an EarlyGradient out of node.grad. Must be called before node.grad is written.
inline void free_grad_memory(Node& node) {
  if (const auto early = node.early.lock()) *early = early->clone();
  node.early.reset();
}

}  // namespace detail

// The data of a Var, shared by its copies.
struct Var::Impl {
  Tensor value;                                                    // the value, or its shape while deferred
  std::shared_ptr<detail::Node> node;                              // null: no gradient
  std::shared_ptr<const std::function<void()>> provide = nullptr;  // Leaf::on_use()
  const void* provide_owner = nullptr;                             // owner of `provide`
  Leaf::Fill fill = nullptr;                                       // while deferred

  void compute() {  // computes a deferred value
    const Tensor memory(value.shape(), value.dtype());
    fill(memory, 0);
    fill = nullptr;
    value.attach(memory);
  }
};

}  // namespace godwit
