#include "autograd/leaf.h"
#include "autograd/var.h"

#include <gtest/gtest.h>

#include <thread>

#include "autograd/ops/linear.h"
#include "autograd/ops/reshape.h"
#include "engine/context.h"

namespace godwit {
namespace var_test {

// y = k·x, elementwise; counts its backward calls.
Var scale(const Var& x, double k, int* calls = nullptr) {
  Tensor y(x.shape(), x.dtype());
  for (int64_t i = 0; i < y.numel(); ++i) y.data<double>()[i] = k * x.value().data<double>()[i];
  return Var::result(y, {x}, [dx = x.gradient(), k, calls](const Tensor& dy) {
    if (calls) ++*calls;
    if (!dx) return;
    Tensor g = dx.target();
    for (int64_t i = 0; i < g.numel(); ++i) g.data<double>()[i] = k * dy.data<double>()[i];
    dx.add(g);
  });
}

// a + b; backward passes dy itself to both inputs.
Var sum(const Var& a, const Var& b) {
  Tensor y(a.shape(), a.dtype());
  for (int64_t i = 0; i < y.numel(); ++i) y.data<double>()[i] = a.value().item(i) + b.value().item(i);
  return Var::result(y, {a, b}, [da = a.gradient(), db = b.gradient()](const Tensor& dy) {
    if (da) da.add(dy);
    if (db) db.add(dy);
  });
}

Var leaf(double value) { return Var(Tensor::full({1}, value, DType::f64), true); }

TEST(Var, SumsContributionsOfAllUses) {
  Var x = leaf(2);
  Var y = sum(scale(x, 3), sum(x, scale(x, 5)));
  backward(y);
  EXPECT_EQ(y.value().item(), 18);
  EXPECT_EQ(x.grad().item(), 9);
}

TEST(Var, SharedContributionIsNotOverwritten) {
  Var x = leaf(1);
  Var a = scale(x, 1), b = scale(x, 10);
  backward(sum(sum(a, b), a));  // gradient of a: dy by reference, then a second contribution
  EXPECT_EQ(x.grad().item(), 12);
}

// linear adds to a gradient in place, unless another node has the same tensor.
TEST(Var, LinearDoesNotOverwriteASharedContribution) {
  for (const bool linear_first : {true, false}) {
    const Var x(Tensor::full({1, 1}, 1, DType::f64), true), weight(Tensor::full({1, 1}, 3, DType::f64), true);
    const Var a = scale(x, 1), b = scale(x, 10), y = ops::linear(a, weight), s = sum(a, b);
    backward(linear_first ? sum(y, s) : sum(s, y));
    EXPECT_EQ(x.grad().item(), 1 + 3 + 10);
  }
}

// The first contribution to a leaf is also passed to another node.
TEST(Var, LeafWithoutMemoryCopiesItsFirstContribution) {
  const Var x = leaf(2), y = leaf(2);
  backward(scale(sum(x, sum(scale(x, 2), scale(x, 3))), 1));
  EXPECT_EQ(x.grad().item(), 6);
  backward(scale(sum(y, sum(scale(y, 3), y)), 1));
  EXPECT_EQ(y.grad().item(), 5);
}

TEST(Var, LeafWritesIntoBoundMemoryAndOverwritesAfterClear) {
  Var x = leaf(2);
  Tensor value = Tensor::zeros({1}, DType::f64), grad = Tensor::full({1}, 99, DType::f64);
  Leaf(x).rebind(value, grad);
  EXPECT_EQ(value.item(), 2) << "rebind copies the value";
  backward(scale(x, 4));
  EXPECT_EQ(grad.item(), 4) << "the first contribution overwrites";
  backward(scale(x, 4));
  EXPECT_EQ(grad.item(), 8) << "later contributions add";
  x.clear_grad();
  backward(scale(x, 4));
  EXPECT_EQ(grad.item(), 4);
}

TEST(Var, HookRunsOnceAfterTheLastContribution) {
  Var x = leaf(1);
  std::vector<double> seen;
  Leaf(x).on_grad([&] { seen.push_back(x.grad().item()); });
  backward(sum(scale(x, 2), scale(scale(x, 3), 1)));
  EXPECT_EQ(seen, std::vector<double>{5});
}

// A replaced object is destroyed after its successor has set another function.
TEST(Var, AFunctionIsRemovedByItsOwnerOnly) {
  const Var x = leaf(1);
  int first = 0, second = 0;
  const int owners[2] = {};
  Leaf(x).on_grad([&] { ++first; }, &owners[0]);
  Leaf(x).on_grad([&] { ++second; }, &owners[1]);
  Leaf(x).on_grad(nullptr, &owners[0]);
  EXPECT_EQ(Leaf(x).grad_hook_owner(), &owners[1]);
  backward(scale(x, 2));
  Leaf(x).on_grad(nullptr, &owners[1]);
  EXPECT_EQ(Leaf(x).grad_hook_owner(), nullptr);
  backward(scale(x, 2));
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 1);
}

TEST(Var, HooksRunBeforeTheRestOfBackward) {
  Var a = leaf(1), b = leaf(1);
  std::vector<std::string> order;
  Leaf(a).on_grad([&] { order.push_back("a"); });
  Leaf(b).on_grad([&] { order.push_back("b"); });
  Var hidden = Var::result(a.value(), {a}, [da = a.gradient(), &order](const Tensor& dy) {
    order.push_back("below a");
    da.add(dy);
  });
  backward(sum(hidden, b));
  EXPECT_EQ(order, (std::vector<std::string>{"b", "below a", "a"}));
}

TEST(Var, NoGraphIfNoInputNeedsAGradient) {
  int calls = 0;
  Var constant(Tensor::full({1}, 1, DType::f64));
  EXPECT_FALSE(scale(constant, 2, &calls).requires_grad());
  NoGrad off;
  EXPECT_FALSE(scale(leaf(1), 2, &calls).requires_grad());
  EXPECT_EQ(calls, 0);
}

TEST(Var, BackwardFreesItsCaptures) {
  Var x = leaf(1);
  const int64_t before = context().pool->stats().bytes_in_use;
  Var y = scale(scale(x, 2), 2);
  backward(y);
  y = Var();
  EXPECT_EQ(context().pool->stats().bytes_in_use, before + 8) << "only x's gradient is left";
}

TEST(Var, DestroysADeepGraphWithoutBackward) {
  Var x = leaf(1);
  for (int i = 0; i < 300000; ++i) x = scale(x, 1);
  const std::weak_ptr<int> captured = [&] {
    auto value = std::make_shared<int>();
    x = Var::result(x.value(), {x}, [value](const Tensor&) {});
    return value;
  }();
  EXPECT_FALSE(captured.expired());
  x = leaf(1);
  EXPECT_TRUE(captured.expired());
}

TEST(Var, RefusesInvalidUse) {
  EXPECT_THROW(backward(Var(Tensor::full({1}, 1, DType::f64))), Error);
  EXPECT_THROW(backward(Var(Tensor::full({2}, 1, DType::f64), true)), Error);
  Var y = scale(leaf(1), 2);
  backward(y);
  EXPECT_THROW(backward(y), Error) << "second backward through one graph";
  EXPECT_THROW(Var().value(), Error);
}

TEST(Recompute, CallsTheFunctionAgainInBackward) {
  const Var x = leaf(2), w = leaf(7);
  int calls = 0, hooks = 0;
  Leaf(w).on_grad([&] { ++hooks; });
  const Var y = recompute({x, w}, [&] {
    ++calls;
    return sum(scale(x, 3), sum(scale(w, 5), x));
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(y.value().item(), 43);
  const Var loss = sum(y, scale(y, 2));
  const NoGrad no_grad;  // does not keep backward from recording the second call
  backward(loss);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(x.grad().item(), 12);
  EXPECT_EQ(w.grad().item(), 15);
  EXPECT_EQ(hooks, 1);
}

TEST(Recompute, WithoutGradientsCallsTheFunctionOnce) {
  const Var x(Tensor::full({1}, 2, DType::f64));
  int calls = 0;
  const Var y = recompute({x}, [&] { return ++calls, scale(x, 3); });
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(y.value().item(), 6);
  EXPECT_EQ(calls, 1);
}

TEST(Recompute, NamesAVariableThatIsNotAnInput) {
  const Var x = leaf(2), w = leaf(7);
  const Var y = recompute({x}, [=] { return sum(scale(x, 3), w); });
  std::string text;
  try {
    backward(y);
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_NE(text.find("with a gradient that is not one of the inputs"), std::string::npos) << text;
}

TEST(Recompute, NamesAVariableOfAnotherThreadThatIsNotAnInput) {
  Var w;
  for (int i = 0; i < 100; ++i) w = leaf(7);  // more nodes than the other thread has
  std::string text;
  std::thread([&] {
    const Var x = leaf(2), y = recompute({x}, [=] { return sum(scale(x, 3), w); });
    try {
      backward(y);
    } catch (const Error& error) {
      text = error.what();
    }
  }).join();
  EXPECT_NE(text.find("with a gradient that is not one of the inputs"), std::string::npos) << text;
}

// The function provides the values for every read in the forward pass, and before each operation of the backward pass.
TEST(Var, OnUseIsCalledBeforeAValueIsRead) {
  const Tensor memory = Tensor::full({2, 2}, 2), detached = Tensor::detached({2, 2}, DType::f32);
  detached.attach(memory);
  const Var w(detached, true);
  detached.detach();
  int uses = 0;
  Leaf(w).on_use([&] {
    ++uses;
    if (!detached.attached()) detached.attach(memory);
  });
  EXPECT_EQ(w.shape(), (Shape{2, 2}));
  EXPECT_EQ(uses, 0) << "the shape needs no values";
  const uint64_t before = operations();
  const Var view = ops::reshape(w, {1, 4});
  detached.detach();
  uses = 0;
  const Var y = ops::linear(Var(Tensor::full({1, 4}, 1), true), view);
  EXPECT_GT(uses, 0) << "a view needs the values too";
  EXPECT_EQ(operations(), before + 2);
  EXPECT_EQ(y.value().item(), 8);
  detached.detach();
  uses = 0;
  backward(y);
  EXPECT_GT(uses, 0);
  EXPECT_EQ(w.grad().item(3), 1);
  Leaf(w).on_use(nullptr);
  uses = 0;
  (void)w.value();
  EXPECT_EQ(uses, 0);
}

}  // namespace var_test
}  // namespace godwit
