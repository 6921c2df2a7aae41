// LSTM layers and language models: PyTorch's results (golden/lstm.json), initialization, dropout, errors.
#include "models/lstm.h"

#include <gmock/gmock.h>

#include <set>

#include "autograd/ops/add.h"
#include "autograd/ops/dropout.h"
#include "autograd/ops/lstm.h"
#include "autograd/ops/softmax_cross_entropy.h"
#include "engine/context.h"
#include "nn/init.h"
#include "nn/lstm.h"
#include "tests/models/golden.h"
#include "tests/support.h"

namespace godwit {
namespace lstm_test {

using ::testing::HasSubstr, ::testing::ElementsAre;
using test::fill_by_formula, test::fnv1a, test::hashed_unit, test::hashed_word, test::summary;
using nlohmann::json;

Tensor table(const std::string& name, const Shape& shape, DType dtype) {
  const Tensor x(shape, DType::f64);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] = hashed_unit(fnv1a(name), i);
  return x.to(dtype);
}

// Σ table(name) · v
Var dot(const Var& v, const std::string& name) {
  const Tensor weight = table(name, v.shape(), v.dtype());
  double sum = 0;
  for (int64_t i = 0; i < weight.numel(); ++i) sum += weight.item(i) * v.value().item(i);
  return Var::result(Tensor::full({}, sum, v.dtype()), {v},
                     [dv = v.gradient(), weight](const Tensor&) { dv.add(weight); });
}

// The tolerance is relative to the largest expected value, at least 0.1.
void expect_near(const std::vector<double>& found, const json& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double largest = 0.1;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i].get<double>(), tolerance * largest) << what << ", element " << i;
}

std::vector<double> values(const Tensor& x) { return x.to(DType::f64).to_vector<double>(); }

class LstmGolden : public ::testing::TestWithParam<DType> {
 protected:
  // Rounding of a few hundred operations.
  double tolerance() const { return GetParam() == DType::f64 ? 1e-13 : 3e-6; }
  const json golden_ = test::read_golden("lstm.json");
};
INSTANTIATE_TEST_SUITE_P(Types, LstmGolden, ::testing::Values(DType::f64, DType::f32),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(LstmGolden, ValuesAndGradientsOfTwoLayers) {
  const json& golden = golden_["layers"];
  const nn::Lstm lstm(4, {6, 6}, GetParam());
  fill_by_formula(lstm);
  const Var x(table("x", {5, 3, 4}, GetParam()), true);
  nn::Lstm::State initial;
  for (const std::string k : {"0", "1"})
    initial.push_back({Var(table("h" + k, {3, 6}, GetParam()), true), Var(table("c" + k, {3, 6}, GetParam()), true)});
  const nn::Lstm::Output out = lstm(x, initial);
  expect_near(values(out.y.value()), golden["values"]["y"], tolerance(), "y");
  Var loss = dot(out.y, "dy");
  for (size_t k = 0; k < 2; ++k) {
    const std::string number = std::to_string(k);
    expect_near(values(out.state[k].h.value()), golden["values"]["h" + number], tolerance(), "h" + number);
    expect_near(values(out.state[k].c.value()), golden["values"]["c" + number], tolerance(), "c" + number);
    loss = ops::add(loss, ops::add(dot(out.state[k].h, "dh" + number), dot(out.state[k].c, "dc" + number)));
  }
  expect_near({loss.value().item()}, json::array({golden["loss"]}), tolerance(), "loss");
  backward(loss);
  size_t compared = 0;
  const auto compare = [&](const std::string& name, const Var& var) {
    const json& expected = golden["gradients"].at(name);
    expect_near(summary(name, var.grad(), expected.size()), expected, tolerance(), "gradient of " + name);
    ++compared;
  };
  for (const Parameter& p : lstm.parameters()) compare(p.name, p.var);
  compare("x", x);
  for (size_t k = 0; k < 2; ++k) {
    compare("h" + std::to_string(k), initial[k].h);
    compare("c" + std::to_string(k), initial[k].c);
  }
  EXPECT_EQ(compared, golden["gradients"].size());
}

LstmConfig small(bool tied, DType dtype = DType::f32) {
  return {.vocab_size = 23, .embedding = 6, .hidden = 8, .layers = 2, .tied = tied, .dtype = dtype};
}

TEST_P(LstmGolden, TrainingWithACarriedState) {
  constexpr int64_t kBatch = 3, kTokens = 19;
  std::vector<int32_t> text;
  for (int64_t i = 0; i < kBatch * kTokens; ++i)
    text.push_back(static_cast<int32_t>(hashed_word(fnv1a("text"), i) % 23));
  for (const bool tied : {true, false}) {
    SCOPED_TRACE(tied ? "tied" : "untied");
    const json& golden = golden_["models"][tied ? "tied" : "untied"];
    const LstmLanguageModel model(small(tied, GetParam()));
    fill_by_formula(model);
    const LstmLanguageModel::State state = model.zero_state(kBatch);
    std::vector<double> losses;
    for (int64_t first = 0; first < kTokens - 1; first += 4) {
      const int64_t time = std::min<int64_t>(4, kTokens - 1 - first);
      const Tensor ids({time, kBatch}, DType::i32, kCpu), labels({time * kBatch}, DType::i32, kCpu);
      for (int64_t i = 0; i < ids.numel(); ++i) {
        const auto at = static_cast<size_t>(i % kBatch * kTokens + first + i / kBatch);
        ids.data<int32_t>()[i] = text[at], labels.data<int32_t>()[i] = text[at + 1];
      }
      const LstmLanguageModel::Output out = model.forward(ids, state);
      carry_state(out.state, state);
      const Var loss = ops::softmax_cross_entropy(out.logits, labels);
      losses.push_back(loss.value().item());
      backward(loss);
      for (const Parameter& p : model.parameters()) {
        dispatch_real(GetParam(), "sgd", [&]<class T>() {
          for (int64_t i = 0; i < p.var.value().numel(); ++i)
            p.var.value().data<T>()[i] -= T(0.7) * p.var.grad().data<T>()[i];
        });
        p.var.clear_grad();
      }
    }
    expect_near(losses, golden["losses"], tolerance(), "losses");
    ASSERT_EQ(model.parameters().size(), golden["parameters"].size());
    for (const Parameter& p : model.parameters()) {
      const json& expected = golden["parameters"].at(p.name);
      expect_near(summary(p.name, p.var.value(), expected.size()), expected, tolerance(), p.name);
    }
    for (size_t k = 0; k < 2; ++k) {
      expect_near(values(state[k].h.value()), golden["state"]["h" + std::to_string(k)], tolerance(), "h");
      expect_near(values(state[k].c.value()), golden["state"]["c" + std::to_string(k)], tolerance(), "c");
    }
  }
}

TEST(LstmModel, HasTheNumberOfParametersOfThePapers) {
  const auto count = [](const std::string& name) {
    int64_t sum = 0;
    for (const Parameter& p : LstmLanguageModel(lstm_config(name)).parameters()) sum += p.var.value().numel();
    return sum;
  };
  // vocabulary · (embedding + hidden + 1) + 4 · hidden · (input + hidden + 2) per layer
  EXPECT_EQ(count("lstm_small"), 10000 * 401 + 2 * 800 * 402);
  EXPECT_EQ(count("lstm_medium"), 10000 * 1301 + 2 * 2600 * 1302);
  EXPECT_EQ(count("lstm_awd"), 10000 * 401 + 4600 * (400 + 1150 + 2) + 4600 * 2302 + 1600 * (1150 + 400 + 2));
  EXPECT_THAT(error_of([] { lstm_config("lstm_midium"); }), HasSubstr("did you mean 'lstm_medium'?"));
}

TEST(LstmModel, InitialValuesAreUniform) {
  LstmConfig config = small(false);
  config.vocab_size = 3000;
  config.init_range = 0.1;
  config.recurrent_range = 0;
  const auto model = make_lstm(config), again = make_lstm(config);
  EXPECT_EQ(Buckets(model->parameters(), {}).value_hash(), Buckets(again->parameters(), {}).value_hash());
  for (const Parameter& p : model->parameters()) {
    EXPECT_EQ(p.decay, p.var.shape().rank() > 1) << p.name;
    const double bound = p.name == "decoder.bias" ? 0 : p.name.starts_with("rnn.") ? 1 / std::sqrt(8.0) : 0.1;
    double largest = 0, sum = 0;
    for (const double value : values(p.var.value())) largest = std::max(largest, std::abs(value)), sum += value;
    EXPECT_LE(largest, bound * (1 + 1e-6)) << p.name;
    EXPECT_GE(largest, 0.9 * bound) << p.name;
    const double n = static_cast<double>(p.var.value().numel());  // the mean's deviation is bound / √(3n)
    EXPECT_LE(std::abs(sum / n), 4.5 * bound / std::sqrt(3 * n)) << p.name;
  }
}

Tensor ids(int64_t time, int64_t batch) {
  const Tensor x({time, batch}, DType::i32, kCpu);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<int32_t>()[i] = static_cast<int32_t>((7 * i + 3) % 23);
  return x;
}

// Each of the four settings drops values independently; masks depend on the context only.
TEST(LstmModel, EachDropoutSettingHasAnEffect) {
  const auto logits = [](const LstmConfig& config, const DropoutContext* run) {
    const auto model = make_lstm(config);
    NoGrad off;
    return values(model->forward(ids(4, 2), model->zero_state(2), run).logits.value());
  };
  LstmConfig none = small(false);
  none.input_dropout = none.hidden_dropout = none.output_dropout = 0;
  const DropoutContext run{1, 0, 0}, later{1, 1, 0}, other_rank{1, 0, 1};
  const auto plain = logits(none, nullptr);
  EXPECT_EQ(logits(none, &run), plain);
  std::set<std::vector<double>> seen{plain};
  for (double LstmConfig::*setting : {&LstmConfig::input_dropout, &LstmConfig::hidden_dropout,
                                      &LstmConfig::output_dropout, &LstmConfig::weight_dropout}) {
    LstmConfig config = none;
    config.*setting = 0.5;
    EXPECT_EQ(logits(config, nullptr), plain) << "nothing is dropped without a context";
    for (const DropoutContext* context : {&run, &later, &other_rank}) {
      EXPECT_TRUE(seen.insert(logits(config, context)).second);
      EXPECT_EQ(logits(config, context), logits(config, context));
    }
  }
}

TEST(Lstm, RecurrentWeightsHaveDropoutSitesAfterTheOutputs) {
  const nn::Lstm lstm(3, {4, 5}, DType::f32);
  nn::initialize(lstm, 1);
  const DropoutContext run{1, 0, 0};
  Var y(table("x", {2, 1, 3}, DType::f32));
  const nn::Lstm::State state = lstm.zero_state(1);
  const nn::Lstm::Output out = lstm(y, state, {.weights = 0.5, .context = &run, .first_site = 7});
  const std::vector<Parameter> p = lstm.parameters();  // of each layer: w_ih, w_hh, b_ih, b_hh
  for (size_t k = 0; k < 2; ++k) {
    const Var w_hh = ops::dropout(p[4 * k + 1].var, 0.5, run.key(9 + static_cast<int64_t>(k)));
    y = ops::lstm(y, state[k], {p[4 * k].var, w_hh, p[4 * k + 2].var, p[4 * k + 3].var}).y;
  }
  EXPECT_EQ(values(out.y.value()), values(y.value()));
}

// DropConnect: dropped recurrent weights get no gradient, the others do.
TEST(LstmModel, DroppedWeightsGetNoGradient) {
  LstmConfig config = small(false);
  config.weight_dropout = 0.5;
  const auto model = make_lstm(config);
  const DropoutContext run{1, 0, 0};
  const LstmLanguageModel::Output out = model->forward(ids(6, 3), model->zero_state(3), &run);
  backward(dot(out.logits, "dy"));
  for (const Parameter& p : model->parameters()) {
    if (!p.name.starts_with("rnn.weight_hh")) continue;
    int64_t zeros = 0;
    for (const double value : values(p.var.grad())) zeros += value == 0;
    const double n = static_cast<double>(p.var.value().numel());
    EXPECT_NEAR(static_cast<double>(zeros), n / 2, 4.5 * std::sqrt(n) / 2) << p.name;
  }
}

TEST(LstmModel, Bfloat16StaysNearFloat32) {
  const auto logits = [](DType dtype) {
    const auto model = make_lstm(small(true, dtype));
    NoGrad off;
    const LstmLanguageModel::Output out = model->forward(ids(6, 3), model->zero_state(3));
    EXPECT_EQ(out.logits.dtype(), DType::f32);
    EXPECT_EQ(out.state[0].h.dtype(), dtype);
    EXPECT_EQ(out.state[0].c.dtype(), DType::f32);
    return values(out.logits.value());
  };
  const auto exact = logits(DType::f32), rounded = logits(DType::bf16);
  double largest = 0;
  for (const double value : exact) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(rounded[i], exact[i], 0.05 * largest) << i;
}

TEST(LstmModel, NamesInvalidSettings) {
  const auto error = [](auto change) {
    LstmConfig config = small(false);
    change(config);
    return error_of([&] { LstmLanguageModel{config}; });
  };
  EXPECT_THAT(error([](LstmConfig& c) { c.layers = 0; }), HasSubstr("must be positive, got 23, 6, 8 and 0"));
  EXPECT_THAT(error([](LstmConfig& c) { c.hidden_dropout = 1; }), HasSubstr("a dropout is 1"));
  EXPECT_THAT(error([](LstmConfig& c) { c.init_range = -1; }), HasSubstr("must not be negative"));
  const auto model = make_lstm(small(false));
  const auto state = model->zero_state(3);
  EXPECT_THAT(error_of([&] { model->forward(Tensor({4, 3}), state); }), HasSubstr("ids must be int32 [time, batch]"));
  EXPECT_THAT(error_of([&] { model->forward(ids(4, 2), state); }),
              HasSubstr("the initial h must be float32 [2, 8], got float32 [3, 8]"));
  EXPECT_THAT(error_of([&] { model->forward(ids(4, 3), {}); }),
              HasSubstr("the initial state has 0 layers, expected 2"));
  const Tensor outside = ids(4, 3);
  outside.data<int32_t>()[5] = 23;
  EXPECT_THAT(error_of([&] { model->forward(outside, state); }), HasSubstr("id 5 is 23, the table has 23 rows"));
}

}  // namespace lstm_test
}  // namespace godwit
