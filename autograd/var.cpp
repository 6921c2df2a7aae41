#include "autograd/var.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <queue>
#include <unordered_map>
#include <utility>

#include "autograd/accumulate.h"
#include "autograd/node.h"
#include "engine/context.h"
#include "engine/profile.h"

namespace godwit {

namespace detail {

// Destroys a graph without recursion, which could overflow the stack: the inputs wait until the outermost destructor
// releases them.
Node::~Node() {
  thread_local std::vector<std::shared_ptr<Node>>* waiting = nullptr;
  std::vector<std::shared_ptr<Node>> mine;
  const bool outermost = waiting == nullptr;
  if (outermost) waiting = &mine;
  std::ranges::move(inputs, std::back_inserter(*waiting));
  backward = nullptr, again = nullptr;  // their captures refer to the inputs, too
  if (!outermost) return;
  while (!mine.empty()) {
    const std::shared_ptr<Node> next = std::move(mine.back());
    mine.pop_back();
  }
  waiting = nullptr;
}

namespace {
std::atomic<uint64_t> created = 0;  // nodes of all threads

std::shared_ptr<Node> make_node(const Tensor& value) {
  auto node = std::make_shared<Node>();
  node->shape = value.shape();
  node->dtype = value.dtype();
  node->device = value.device();
  node->order = created.fetch_add(1, std::memory_order_relaxed);
  return node;
}
}  // namespace

}  // namespace detail

using detail::free_grad_memory;
using detail::Node;

namespace {
thread_local uint64_t finished_operations = 0;

void ensure_grad_memory(Node& node) {
  if (node.allocate_grad && !node.grad.defined()) node.grad = node.allocate_grad();
}

// to += g
void add_to(const Tensor& to, const Tensor& g) {
  on_device(to, [&](auto device) { accumulate(device, g, to); });
}
}  // namespace

Tensor Gradient::target() const {
  ensure_grad_memory(*node_);
  free_grad_memory(*node_);
  if (node_->leaf() && !node_->has_grad && node_->grad.defined()) return node_->grad;
  return Tensor(node_->shape, node_->dtype, node_->device);
}

void Gradient::add(const Tensor& g) const {
  Node& node = *node_;
  check(g.shape() == node.shape && g.dtype() == node.dtype, "backward: a gradient is ", g.dtype(), " ", g.shape(),
        ", expected ", node.dtype, " ", node.shape, " as its value is");
  ensure_grad_memory(node);
  free_grad_memory(node);
  if (node.leaf() && node.grad.defined()) {
    if (!node.has_grad) node.grad.copy_from(g);
    else add_to(node.grad, g);
  } else if (!node.has_grad) {
    node.grad = node.leaf() ? g.clone() : g;  // the caller may pass g to another node, too
  } else if (node.grad.shared()) {
    Tensor sum = node.grad.clone();
    add_to(sum, g);
    node.grad = sum;
  } else {
    add_to(node.grad, g);
  }
  node.has_grad = true;
}

Tensor Gradient::accumulator() const {
  const Node& node = *node_;
  return node.has_grad && !node.leaf() && !node.grad.shared() ? node.grad : Tensor();
}

Tensor Gradient::sum() const {
  Node& node = *node_;
  free_grad_memory(node);
  if (!node.has_grad) {
    node.grad = target();
    node.grad.zero();
  } else if (!node.leaf() && node.grad.shared()) {
    node.grad = node.grad.clone();
  }
  node.has_grad = true;
  return node.grad;
}

EarlyGradient::EarlyGradient(const Gradient& gradient) : gradient_(gradient) {
  if (!gradient) return;
  Node& node = *gradient.node_;
  const bool bound = node.leaf() && !node.has_grad && node.grad.defined() && node.early.expired();
  memory_ = std::make_shared<Tensor>(bound ? node.grad : Tensor(node.shape, node.dtype, node.device));
  if (bound) node.early = memory_;
}

void EarlyGradient::add() const {
  Node& node = *gradient_.node_;
  if (node.early.lock() == memory_) node.early.reset();
  gradient_.add(*memory_);
}

Var::Var(Tensor value, bool requires_grad) : impl_(std::make_shared<Impl>()) {
  check(value.defined(), "Var: the value is undefined");
  impl_->value = std::move(value);
  if (requires_grad) impl_->node = detail::make_node(impl_->value);
}

Var Var::result(Tensor value, const std::vector<Var>& inputs, std::function<void(const Tensor&)> backward) {
  const bool wanted = wants_grad(inputs);
  Var result(std::move(value), wanted);
  ++finished_operations;
  for (const Var& input : inputs)
    if (input.impl_ && input.impl_->provide && input.impl_->value.same_buffer(result.impl_->value))
      result.impl_->provide = input.impl_->provide;
  if (wanted) {
    result.impl_->node->provide = result.impl_->provide;
    for (const Var& input : inputs)
      if (input.impl_ && input.impl_->node) result.impl_->node->inputs.push_back(input.impl_->node);
    result.impl_->node->backward = std::move(backward);
  }
  return result;
}

const Tensor& Var::value() const {
  check(defined(), "Var: an undefined Var has no value");
  if (impl_->fill) [[unlikely]]
    impl_->compute();
  if (impl_->provide) (*impl_->provide)();
  return impl_->value;
}

const Tensor& Var::tensor() const {
  check(defined(), "Var: an undefined Var has no shape, type or device");
  return impl_->value;
}

bool Var::requires_grad() const { return defined() && impl_->node != nullptr; }

Gradient Var::gradient() const {
  return context().grad_enabled && requires_grad() ? Gradient(impl_->node) : Gradient();
}

const Tensor& Var::grad() const {
  check(requires_grad(), "grad: this Var does not require a gradient");
  return impl_->node->grad;
}

bool Var::has_grad() const { return requires_grad() && impl_->node->has_grad; }

void Var::clear_grad() const {
  if (requires_grad()) impl_->node->has_grad = false;
}

uint64_t operations() { return finished_operations; }

bool wants_grad(const std::vector<Var>& inputs) {
  if (!context().grad_enabled) return false;
  for (const Var& input : inputs)
    if (input.requires_grad()) return true;
  return false;
}

Var recompute(const std::vector<Var>& inputs, const std::function<Var()>& f) {
  if (!wants_grad(inputs)) return f();
  const Tensor value = [&] {
    const NoGrad no_grad;
    return f().value();
  }();
  const Var result = Var::result(value, inputs, nullptr);
  result.impl_->node->again = f;
  return result;
}

namespace {

// For each node: the number of reachable ops that have yet to contribute.
using Uses = std::unordered_map<Node*, int>;

// Counts a use of `root` and, if it is the first one, the uses of all nodes that it depends on. Nodes older than
// `oldest` must have uses already.
void count_use(const std::shared_ptr<Node>& root, uint64_t oldest, Uses& uses) {
  if (uses[root.get()]++ != 0) return;
  std::vector<Node*> open{root.get()};
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    check(node->order >= oldest, "recompute: the function depends on a variable ", node->shape,
          " with a gradient that is not one of the inputs; add it to `inputs`");
    check(!node->walked, "backward: this part of the graph was already traversed and freed");
    for (const auto& input : node->inputs)
      if (uses[input.get()]++ == 0) open.push_back(input.get());
  }
}

Var with_gradients(const std::function<Var()>& f) {
  const ContextGuard guard([](Context& next) { next.grad_enabled = true; });
  return f();
}

// Calls the function of recompute() again. The node of its result becomes an input of `node` with the gradient `dy`.
void expand(Node& node, const Tensor& dy, const std::function<std::shared_ptr<Node>()>& again, Uses& uses) {
  const ProfileRange range("recompute");
  const uint64_t oldest = detail::created;
  const std::shared_ptr<Node> result = again();
  check(result != nullptr, "recompute: the second result of the function has no gradient, the first one has");
  count_use(result, oldest, uses);
  node.inputs.push_back(result);
  Gradient(result).add(dy);
}

}  // namespace

void backward(const Var& loss, double seed) {
  const ProfileRange range("backward");
  check(loss.requires_grad(), "backward: the loss does not depend on anything that requires a gradient");
  check(loss.value().numel() == 1, "backward: the loss must have one element, got ", loss.shape());
  const std::shared_ptr<Node>& root = loss.impl_->node;
  Uses uses;
  count_use(root, 0, uses);
  auto earlier = [](const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) { return a->order < b->order; };
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, decltype(earlier)> ready(earlier);
  // Hooks of leaves run immediately, although leaves are the oldest nodes: the work they start overlaps with backward.
  auto release = [&](std::shared_ptr<Node> node) {
    if (!node->leaf()) ready.push(std::move(node));
    else if (node->hook) node->hook();
  };
  const Tensor first(root->shape, root->dtype, root->device);
  first.fill(seed);
  Gradient(root).add(first);
  release(root);
  while (!ready.empty()) {
    const std::shared_ptr<Node> node = ready.top();
    ready.pop();
    auto run = std::exchange(node->backward, nullptr);
    auto again = std::exchange(node->again, nullptr);
    node->walked = true;
    if (node->has_grad) {
      const Tensor dy = std::exchange(node->grad, Tensor());
      if (again) {
        expand(*node, dy, [&] { return with_gradients(again).impl_->node; }, uses);
      } else {
        for (const auto& input : node->inputs)
          if (input->provide) (*input->provide)();
        run(dy);
      }
    }
    run = nullptr, again = nullptr;  // frees the captured activations
    ++finished_operations;
    for (auto& input : std::exchange(node->inputs, {}))
      if (--uses.at(input.get()) == 0) release(std::move(input));
  }
}

}  // namespace godwit
