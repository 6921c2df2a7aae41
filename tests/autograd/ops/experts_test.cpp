#include "autograd/ops/experts.h"

#include <gmock/gmock.h>

#include <limits>

#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace experts_test {

using test::check_gradients, test::random_tensor, test::values, test::with_threads;

// Positive numbers; no two of a row are equal.
Tensor probabilities(int64_t n, int64_t experts, uint64_t seed = 1) {
  const Tensor p = random_tensor({n, experts}, DType::f64, seed);
  for (double& x : p.span<double>()) x = std::exp(x);
  return p;
}

TEST(Experts, RoutesToTheLargest) {
  const Tensor p =
      Tensor::of<double>({0.1, 0.2, 0.4, 0.3, /**/ 0.25, 0.25, 0.25, 0.25, /**/ 0.5, 0.1, 0.0, 0.4}, {3, 4});
  const ExpertRouting routing = route_to_experts(p, 2);
  EXPECT_EQ(values(routing.experts), (std::vector<double>{2, 3, 0, 1, 0, 3}));
  EXPECT_EQ(routing.start, (std::vector<int64_t>{0, 2, 3, 4, 6}));
  EXPECT_EQ(values(routing.tokens), (std::vector<double>{1, 2, 1, 0, 0, 2}));
  EXPECT_EQ(values(routing.slots), (std::vector<double>{3, 4, 0, 2, 1, 5}));
}

struct Case {
  int64_t n, experts, k, width;
};
// The second case has experts without rows.
const Case kCases[] = {{1, 1, 1, 1}, {2, 9, 2, 3}, {7, 4, 3, 5}, {5, 2, 2, 4}};

TEST(Experts, Gradients) {
  for (const auto& [n, experts, k, width] : kCases) {
    const Tensor p = probabilities(n, experts), x = random_tensor({n, width}, DType::f64, 2);
    const ExpertRouting routing = route_to_experts(p, k);
    const Tensor rows = random_tensor({n * k, width}, DType::f64, 3), weights = random_tensor({n, k}, DType::f64, 4);
    check_gradients([&](const auto& in) { return ops::expert_weights(in[0], routing); }, {p});
    check_gradients([&](const auto& in) { return ops::dispatch_to_experts(in[0], routing); }, {x});
    check_gradients([&](const auto& in) { return ops::combine_experts(in[0], in[1], routing); }, {rows, weights});
    std::vector<Tensor> inputs{rows};
    for (int64_t e = 0; e < experts; ++e) inputs.push_back(random_tensor({2, width}, DType::f64, 5 + uint64_t(e)));
    check_gradients(
        [&](const auto& in) {
          return ops::expert_linear(in[0], {in.begin() + 1, in.end()}, routing);
        },
        inputs);
    const Tensor other = probabilities(n + 1, experts, 9);
    const std::vector<ExpertRouting> both{routing, route_to_experts(other, k)};
    check_gradients([&](const auto& in) { return ops::load_balancing_loss({in[0], in[1]}, both); }, {p, other});
  }
}

// All tokens through all experts, weighted by 0 where a token does not use an expert.
TEST(Experts, EqualTheDefinition) {
  for (const auto& [n, experts, k, width] : kCases) {
    const Tensor p = probabilities(n, experts), x = random_tensor({n, width}, DType::f64, 2);
    const ExpertRouting routing = route_to_experts(p, k);
    std::vector<Var> weights;
    for (int64_t e = 0; e < experts; ++e) weights.emplace_back(random_tensor({3, width}, DType::f64, 5 + uint64_t(e)));
    const Var rows = ops::expert_linear(ops::dispatch_to_experts(Var(x), routing), weights, routing);
    const Tensor y = ops::combine_experts(rows, ops::expert_weights(Var(p), routing), routing).value();
    for (int64_t t = 0; t < n; ++t) {
      double sum = 0, expected[3] = {};
      for (int64_t s = 0; s < k; ++s) sum += p.item(t * experts + int64_t(routing.experts.item(t * k + s)));
      for (int64_t s = 0; s < k; ++s) {
        const auto e = static_cast<int64_t>(routing.experts.item(t * k + s));
        for (int64_t o = 0; o < 3; ++o)
          for (int64_t c = 0; c < width; ++c)
            expected[o] +=
                p.item(t * experts + e) / sum * weights[size_t(e)].value().item(o * width + c) * x.item(t * width + c);
      }
      for (int64_t o = 0; o < 3; ++o) EXPECT_NEAR(y.item(t * 3 + o), expected[o], 1e-13);
    }
  }
}

TEST(Experts, LoadBalancingLossEqualsTheDefinition) {
  const Tensor p = probabilities(7, 4);
  const ExpertRouting routing = route_to_experts(p, 2);
  double expected = 0;
  for (int64_t e = 0; e < 4; ++e) {
    double mean = 0;
    for (int64_t t = 0; t < 7; ++t) mean += p.item(t * 4 + e) / 7;
    expected += 4 * static_cast<double>(routing.rows(e)) / 7 * mean;
  }
  EXPECT_NEAR(ops::load_balancing_loss({Var(p)}, {routing}).value().item(), expected, 1e-13);
}

TEST(Experts, SameBitsOnAnyThreadCount) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const int64_t n = 300, k = 2, width = 70;
    const ExpertRouting routing = route_to_experts(probabilities(n, 5), k);
    const auto run = [&] {
      const Var rows(random_tensor({n * k, width}, DType::f64, 3).to(dtype), true);
      const Var weights(random_tensor({n, k}, DType::f32, 4), true);
      const Var y = ops::combine_experts(rows, weights, routing);
      const Tensor dy = random_tensor({n, width}, DType::f64, 5).to(dtype);
      test::backward_from(y, dy);
      return std::vector{values(y.value()), values(rows.grad()), values(weights.grad())};
    };
    EXPECT_EQ(with_threads(3, run), with_threads(1, run)) << dtype;
  }
}

TEST(Experts, NamesInvalidArguments) {
  EXPECT_EQ(error_of([] { route_to_experts(probabilities(2, 3), 4); }),
            "experts: a token must use 1 to 3 experts, not 4");
  const Tensor bad = probabilities(2, 3);
  bad.data<double>()[4] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(error_of([&] { route_to_experts(bad, 1); }),
            "experts: the probability of expert 1 for token 1 is not a number");
  const ExpertRouting routing = route_to_experts(probabilities(2, 3), 2);
  EXPECT_THAT(error_of([&] {
                ops::dispatch_to_experts(Var(Tensor::zeros({3, 4})), routing);
              }),
              ::testing::HasSubstr("dispatch_to_experts: expected [2, columns], got [3, 4]"));
  EXPECT_THAT(error_of([&] {
                ops::expert_linear(Var(Tensor::zeros({4, 4})), {Var(Tensor::zeros({2, 4}))}, routing);
              }),
              ::testing::HasSubstr("expert_linear: 1 weights for 3 experts"));
}

}  // namespace experts_test
}  // namespace godwit
