#include "autograd/ops/lstm.h"

#include "autograd/ops/add.h"
#include "autograd/ops/matmul.h"
#include "autograd/ops/reshape.h"
#include "tests/autograd/gradient_check.h"
#include "tests/support.h"

namespace godwit {
namespace lstm_test {

using test::check_gradients, test::random_tensor, test::values, test::with_threads;

struct Sizes {
  int64_t time, batch, input, width;
};

// x, h_0, c_0, w_ih, w_hh, b_ih, b_hh
std::vector<Tensor> inputs(const Sizes& s, DType dtype = DType::f64) {
  const DType wide = compute_dtype(dtype);
  const auto weight = [&](Shape shape, uint64_t seed) { return random_tensor(shape, wide, seed, 0.5); };
  return {random_tensor({s.time, s.batch, s.input}, DType::f64, 1).to(dtype),
          random_tensor({s.batch, s.width}, DType::f64, 2).to(dtype),
          random_tensor({s.batch, s.width}, wide, 3),
          weight({4 * s.width, s.input}, 4),
          weight({4 * s.width, s.width}, 5),
          weight({4 * s.width}, 6),
          weight({4 * s.width}, 7)};
}

ops::LstmResult run(const std::vector<Var>& in) {
  return ops::lstm(in[0], {in[1], in[2]}, {in[3], in[4], in.size() > 5 ? in[5] : Var(), in.size() > 5 ? in[6] : Var()});
}

// Sum of y over the steps, h and c: a function of all three outputs.
Var all_outputs(const ops::LstmResult& result) {
  const int64_t time = result.y.dim(0), cells = result.y.value().numel() / time;
  const Var ones(Tensor::full({1, time}, 1, result.y.dtype()));
  const Var sum = ops::matmul(ones, ops::reshape(result.y, {time, cells}));
  return ops::add(ops::add(sum, ops::reshape(result.state.h, {1, cells})), ops::reshape(result.state.c, {1, cells}));
}

const Sizes kSizes[] = {{1, 1, 1, 1}, {3, 2, 4, 5}, {4, 3, 2, 1}, {2, 1, 3, 9}};

TEST(Lstm, GradientsOfEveryOutput) {
  for (const Sizes& s : kSizes) {
    SCOPED_TRACE(detail::concat(s.time, " ", s.batch, " ", s.input, " ", s.width));
    check_gradients([](const auto& in) { return run(in).y; }, inputs(s));
    check_gradients([](const auto& in) { return run(in).state.h; }, inputs(s));
    check_gradients([](const auto& in) { return run(in).state.c; }, inputs(s));
    check_gradients([](const auto& in) { return all_outputs(run(in)); }, inputs(s));
  }
}

TEST(Lstm, GradientsWithoutBiases) {
  std::vector<Tensor> in = inputs({3, 2, 4, 5});
  in.resize(5);
  check_gradients([](const auto& given) { return run(given).y; }, in);
}

// Each input alone, so that no gradient depends on whether another gradient is computed.
TEST(Lstm, GradientsOfOneInput) {
  const std::vector<Tensor> in = inputs({3, 2, 4, 5});
  for (size_t wanted = 0; wanted < in.size(); ++wanted) {
    SCOPED_TRACE(wanted);
    const auto f = [&](const std::vector<Var>& given) {
      std::vector<Var> all;
      for (const Tensor& x : in) all.emplace_back(x);
      all[wanted] = given[0];
      return run(all).y;
    };
    check_gradients(f, {in[wanted]});
  }
}

TEST(Lstm, UndefinedInitialStateIsZero) {
  std::vector<Tensor> in = inputs({3, 2, 4, 5});
  in[1].zero(), in[2].zero();
  std::vector<Var> vars;
  for (const Tensor& x : in) vars.emplace_back(x, true);
  const ops::LstmResult zeros = run(vars);
  vars[1] = vars[2] = Var();
  const ops::LstmResult none = run(vars);
  EXPECT_EQ(values(none.y.value()), values(zeros.y.value()));
  EXPECT_EQ(values(none.state.c.value()), values(zeros.state.c.value()));
  backward(test::weighted_sum(none.y));
  EXPECT_TRUE(vars[3].has_grad());
}

// A sequence in two windows, with the state between them.
TEST(Lstm, StateConnectsTwoWindows) {
  const Sizes s{5, 2, 3, 4};
  const std::vector<Tensor> in = inputs(s);
  const auto gradients = [&](bool split) {
    std::vector<Var> vars;
    for (const Tensor& x : in) vars.emplace_back(x.clone(), true);
    Var loss;
    if (split) {
      const Var first(in[0].rows(0, 2).clone()), second(in[0].rows(2, 3).clone());
      const ops::LstmWeights w{vars[3], vars[4], vars[5], vars[6]};
      const ops::LstmResult a = ops::lstm(first, {vars[1], vars[2]}, w), b = ops::lstm(second, a.state, w);
      const auto matrix = [](const Var& y) { return ops::reshape(y, {y.dim(0), 8}); };
      const auto summed = [&](const Var& y) {
        return ops::matmul(Var(Tensor::full({1, y.dim(0)}, 1, DType::f64)), matrix(y));
      };
      loss = test::weighted_sum(ops::add(summed(a.y), summed(b.y)));
      EXPECT_EQ(values(b.state.h.value()), values(run(vars).state.h.value()));
      EXPECT_EQ(values(b.state.c.value()), values(run(vars).state.c.value()));
    } else {
      const Var y = run(vars).y;
      loss = test::weighted_sum(
          ops::matmul(Var(Tensor::full({1, 5}, 1, DType::f64)), ops::reshape(y, {5, 8})));
    }
    backward(loss);
    std::vector<std::vector<double>> all;
    for (size_t i = 1; i < vars.size(); ++i) all.push_back(values(vars[i].grad()));
    return all;
  };
  const auto whole = gradients(false), parts = gradients(true);
  for (size_t i = 0; i < whole.size(); ++i)
    for (size_t k = 0; k < whole[i].size(); ++k) ASSERT_NEAR(parts[i][k], whole[i][k], 1e-13) << i << " " << k;
}

// The value and all gradients of y in one vector.
std::vector<std::vector<double>> results(const std::vector<Tensor>& in) {
  std::vector<Var> vars;
  for (const Tensor& x : in) vars.emplace_back(x.clone(), true);
  const Var y = run(vars).y;
  std::vector<std::vector<double>> all{values(y.value())};
  const Tensor dy = random_tensor(y.shape(), DType::f64, 42).to(y.dtype());
  test::backward_from(y, dy);
  for (const Var& var : vars) all.push_back(values(var.grad()));
  return all;
}

double largest(const std::vector<double>& x) {
  double most = 0;
  for (const double value : x) most = std::max(most, std::abs(value));
  return most;
}

// Errors of the products accumulate over the steps; 40 units in the last place of the largest element cover them.
TEST(Lstm, Float32AndBfloat16) {
  for (const Sizes& s : {Sizes{6, 3, 7, 33}, Sizes{3, 5, 16, 64}, Sizes{4, 1, 20, 70}})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::vector<Tensor> in = inputs(s, dtype);
      std::vector<Tensor> exact;
      for (const Tensor& x : in) exact.push_back(x.to(DType::f64));
      const auto expected = results(exact), found = results(in);
      const double unit = dtype == DType::f32 ? 0x1p-24 : 0x1p-8;
      for (size_t i = 0; i < expected.size(); ++i) {
        const double tolerance = 40 * unit * largest(expected[i]);
        for (size_t k = 0; k < expected[i].size(); ++k)
          ASSERT_NEAR(found[i][k], expected[i][k], tolerance)
              << dtype << ", width " << s.width << ", result " << i << ", element " << k;
      }
    }
}

TEST(Lstm, SameBitsForEveryThreadCountAndVectorWidth) {
  const std::vector<Tensor> wide = inputs({3, 9, 5, 600});
  const auto expected = with_threads(1, [&] { return results(wide); });
  EXPECT_EQ(with_threads(3, [&] { return results(wide); }), expected);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::vector<Tensor> in = inputs({3, 4, 5, 37}, dtype);
    const auto full = results(in);
    const ContextGuard guard([](Context& next) { next.vector_bits = 128; });
    EXPECT_EQ(results(in), full) << dtype;
  }
}

TEST(Lstm, SaturatedGatesStayFinite) {
  std::vector<Tensor> in = inputs({3, 2, 4, 5}, DType::f32);
  for (float& value : in[0].span<float>()) value *= 1e4f;
  for (const auto& result : results(in))
    for (const double value : result) ASSERT_TRUE(std::isfinite(value));
}

TEST(Lstm, NamesInvalidArguments) {
  const auto message = [](size_t input, const Tensor& instead) {
    std::vector<Var> vars;
    for (const Tensor& x : inputs({3, 2, 4, 5})) vars.emplace_back(x);
    vars[input] = Var(instead);
    return error_of([&] { run(vars); });
  };
  const auto zeros = [](Shape shape, DType dtype = DType::f64) { return Tensor::zeros(shape, dtype); };
  EXPECT_EQ(message(0, zeros({3, 2})), "lstm: x must be [time, batch, input] and not empty, got [3, 2]");
  EXPECT_EQ(message(0, zeros({0, 2, 4})), "lstm: x must be [time, batch, input] and not empty, got [0, 2, 4]");
  EXPECT_EQ(message(0, zeros({3, 2, 6})), "lstm: w_ih must be float64 [20, 6], got float64 [20, 4]");
  EXPECT_EQ(message(0, zeros({3, 2, 4}, DType::i32)), "lstm: takes float32, bfloat16 or float64, x is int32");
  EXPECT_EQ(message(1, zeros({3, 5})), "lstm: the initial h must be float64 [2, 5], got float64 [3, 5]");
  EXPECT_EQ(message(2, zeros({2, 5}, DType::f32)), "lstm: the initial c must be float64 [2, 5], got float32 [2, 5]");
  EXPECT_EQ(message(4, zeros({20, 4})), "lstm: w_hh must be [4·width, width], got [20, 4]");
  EXPECT_EQ(message(6, zeros({5})), "lstm: b_hh must be float64 [20], got float64 [5]");
}

}  // namespace lstm_test
}  // namespace godwit
