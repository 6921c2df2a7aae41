#include "autograd/leaf.h"
#include "models/resnet.h"

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "autograd/ops/softmax_cross_entropy.h"
#include "engine/context.h"
#include "tests/models/image_golden.h"

namespace godwit {
namespace resnet_test {

int64_t parameter_count(const std::string& name, const std::function<void(ResNetConfig&)>& change = {}) {
  ResNetConfig config = resnet_config(name);
  if (change) change(config);
  int64_t count = 0;
  for (const Parameter& p : ResNet(config).parameters()) count += p.var.value().numel();
  return count;
}

TEST(ResNet, HasThePublishedNumberOfParameters) {
  EXPECT_EQ(parameter_count("resnet18"), 11689512);
  EXPECT_EQ(parameter_count("resnet34"), 21797672);
  EXPECT_EQ(parameter_count("resnet50"), 25557032);
  EXPECT_EQ(parameter_count("resnet101"), 44549160);
  EXPECT_EQ(parameter_count("resnet20"), 269722);
  EXPECT_EQ(parameter_count("resnet32"), 464154);
  EXPECT_EQ(parameter_count("resnet56"), 853018);
  EXPECT_EQ(parameter_count("resnet18", [](ResNetConfig& c) { c.small_stem = true, c.in_channels = 1; }),
            11689512 - 64 * 7 * 7 * 3 + 64 * 3 * 3);
  const auto narrow = [](ResNetConfig& c) { c.blocks = {1}, c.width = 8, c.num_classes = 10; };
  EXPECT_EQ(parameter_count("resnet18", narrow), 8 * 7 * 7 * 3 + 2 * 8 * 3 * 3 * 8 + 3 * 2 * 8 + (8 + 1) * 10);
}

TEST(ResNet, NamesAndOrderMatchTorchvision) {
  const nlohmann::json golden = test::read_golden("names.json");
  for (const auto& [name, lists] : golden.items()) {
    SCOPED_TRACE(name);
    test::expect_names(lists, ResNet(resnet_config(name)));
  }
}

TEST(ResNet, WeightDecayAppliesOnlyToFiltersAndMatrices) {
  const ResNet model(resnet_config("resnet18"));
  for (const Parameter& p : model.parameters()) EXPECT_EQ(p.decay, p.var.shape().rank() > 1) << p.name;
}

TEST(ResNet, ForwardReturnsOneRowOfLogitsPerImage) {
  for (const std::string& name : resnet_names()) {
    SCOPED_TRACE(name);
    ResNetConfig config = resnet_config(name);
    config.num_classes = 7;
    config.in_channels = 1;
    const ResNet model(config);
    test::fill_by_formula(model);
    const int64_t size = model.smallest_image() + 1;
    NoGrad off;
    const Tensor x = test::golden_images({3, size, size, 1}, DType::f32);
    const Var logits = model.forward(Var(x));
    ASSERT_EQ(logits.shape(), (Shape{3, 7}));
    for (const float logit : logits.value().span<float>()) EXPECT_TRUE(std::isfinite(logit));
  }
}

TEST(ResNet, SmallStemAcceptsSmallImages) {
  ResNetConfig config = resnet_config("resnet18");
  config.small_stem = true;
  config.in_channels = 1;
  config.num_classes = 10;
  const ResNet model(config);
  NoGrad off;
  EXPECT_EQ(model.forward(Var(Tensor::full({2, 28, 28, 1}, 0.5))).shape(), (Shape{2, 10}));
}

TEST(ResNet, EvaluationTreatsImagesOfABatchIndependently) {
  const auto model = make_resnet(resnet_config("resnet20"));
  model->train(false);
  NoGrad off;
  const Tensor x = test::golden_images({3, 32, 32, 3}, DType::f32);
  const Tensor all = model->forward(Var(x)).value(), last = model->forward(Var(x.rows(2, 1))).value();
  for (int64_t i = 0; i < 10; ++i) EXPECT_NEAR(all.item(20 + i), last.item(i), 1e-4 * std::abs(last.item(i)) + 1e-5);
}

TEST(ResNet, ZeroInitResidualStartsBlocksAsShortcuts) {
  ResNetConfig config = resnet_config("resnet50");
  config.zero_init_residual = true;
  int zeros = 0;
  for (const Parameter& p : ResNet(config).parameters())
    if (p.var.shape().rank() == 1 && p.name.ends_with("weight")) {
      const bool last = p.name.ends_with("bn3.weight");
      zeros += last;
      EXPECT_EQ(p.var.value().item(0), last ? 0 : 1) << p.name;
    }
  EXPECT_EQ(zeros, 16);
}

TEST(ResNet, InitialValuesDependOnlyOnSeedAndName) {
  ResNetConfig config = resnet_config("resnet20");
  auto values = [](const ResNetConfig& c, int threads) {
    const ContextGuard guard([&](Context& next) { next.threads = threads; });
    std::map<std::string, std::vector<float>> result;
    for (const Parameter& p : make_resnet(c)->parameters()) result[p.name] = p.var.value().to_vector<float>();
    return result;
  };
  const auto first = values(config, 1);
  EXPECT_EQ(first, values(config, 3)) << "the thread count changed the values";
  ResNetConfig deeper = resnet_config("resnet32");
  EXPECT_EQ(first.at("layer1.2.conv2.weight"), values(deeper, 1).at("layer1.2.conv2.weight"));
  config.seed = 2;
  const auto other = values(config, 1);
  std::set<float> leading;
  for (const auto& [name, value] : first) {
    const bool drawn = name.find("bn") == std::string::npos;
    EXPECT_EQ(drawn, value != other.at(name)) << name;
    EXPECT_TRUE(!drawn || leading.insert(value[0]).second) << name << " has the same first value as another parameter";
  }
}

TEST(ResNet, InitialValuesHaveTheVarianceOfTorchvision) {
  const auto model = make_resnet({.blocks = {2, 2}});
  for (const Parameter& p : model->parameters()) {
    const Shape& s = p.var.shape();
    const auto values = p.var.value().to_vector<float>();
    const double n = static_cast<double>(values.size());
    double sum = 0, squares = 0, fourth = 0, largest = 0;
    for (const double v : values) {
      sum += v, squares += v * v, fourth += v * v * v * v;
      largest = std::max(largest, std::abs(v));
    }
    if (s.rank() == 4) {
      // Relative standard errors for a normal sample: √(2/n) for the variance, √(24/n) for the kurtosis (3). Tolerance:
      // five.
      const double expected = 2.0 / static_cast<double>(s[0] * s[1] * s[2]), variance = squares / n;
      EXPECT_NEAR(variance / expected, 1, 5 * std::sqrt(2 / n)) << p.name;
      EXPECT_NEAR(sum / n, 0, 5 * std::sqrt(expected / n)) << p.name;
      EXPECT_NEAR(fourth / n / (variance * variance), 3, 5 * std::sqrt(24 / n)) << p.name;
    } else if (p.name.starts_with("fc.")) {
      const double bound = 1 / std::sqrt(128.0);
      EXPECT_LE(largest, bound) << p.name;
      EXPECT_GE(largest, 0.98 * bound) << p.name;
      EXPECT_NEAR(sum / n, 0, 5 * bound / std::sqrt(3 * n)) << p.name;
    }
  }
}

std::vector<double> losses(DType dtype) {
  ResNetConfig config = resnet_config("resnet20");
  config.dtype = dtype;
  return image_golden::losses_on_random_labels(*make_resnet(config), {32, 16, 16, 3}, 10, 30, 0.1);
}

TEST(ResNet, LearnsRandomLabels) {
  const std::vector<double> loss = losses(DType::f32);
  EXPECT_GT(loss.front(), 1.5) << "chance with ten classes is about ln 10";
  EXPECT_LT(loss.back(), 0.5 * loss.front());
}

// Parameters, their gradients and the loss are float32. 20 layers round their results by at most 2^-8 with random
// signs, which changes a logit of order 1 by about √20 · 2^-8 = 0.02. The loss after 30 steps falls as far as in
// float32.
TEST(ResNet, LearnsRandomLabelsInBfloat16) {
  const std::vector<double> single = losses(DType::f32), half = losses(DType::bf16);
  EXPECT_NE(half.front(), single.front());
  EXPECT_NEAR(half.front(), single.front(), 0.05);
  EXPECT_LT(half.back(), 0.5 * half.front());
  EXPECT_NEAR(half.back(), single.back(), 0.1 * single.front());
  EXPECT_EQ(losses(DType::bf16), half) << "two runs must have equal bits";
}

TEST(ResNet, EveryHookRunsOnceAndTheStemsLast) {
  const auto model = make_resnet(resnet_config("resnet20"));
  std::vector<std::string> finished;
  for (const Parameter& p : model->parameters())
    Leaf(p.var).on_grad([&finished, name = p.name] { finished.push_back(name); });
  backward(ops::softmax_cross_entropy(model->forward(Var(test::golden_images({4, 8, 8, 3}, DType::f32))),
                                      test::golden_labels(4, 10)));
  EXPECT_EQ(finished.size(), model->parameters().size());
  EXPECT_EQ(std::set<std::string>(finished.begin(), finished.end()).size(), finished.size());
  EXPECT_TRUE(finished.front().starts_with("fc.")) << finished.front();
  EXPECT_EQ(finished.back(), "conv1.weight") << "the gradient of the first layer must arrive last";
}

TEST(ResNet, GradientsAreWrittenToTheBuckets) {
  const auto model = make_resnet(resnet_config("resnet20")), loose = make_resnet(resnet_config("resnet20"));
  const Buckets buckets(model->parameters(), {.first_bytes = 1 << 12, .bytes = 1 << 16});
  EXPECT_EQ(buckets.numel(), 269722);
  ASSERT_GT(buckets.size(), 10);
  const Var x(test::golden_images({4, 8, 8, 3}, DType::f32));
  for (const ResNet* each : {model.get(), loose.get()})
    backward(ops::softmax_cross_entropy(each->forward(x), test::golden_labels(4, 10)));
  std::map<std::string, Tensor> expected;
  for (const Parameter& p : loose->parameters()) expected[p.name] = p.var.grad();
  for (const Bucket& bucket : buckets)
    for (const Slot& slot : bucket.slots)
      EXPECT_EQ(bucket.grad.range(slot.offset, slot.numel).to_vector<float>(),
                expected.at(slot.name).to_vector<float>())
          << slot.name;
}

TEST(ResNet, LayoutHashDependsOnlyOnTheModel) {
  auto hash = [](const ResNetConfig& config, int64_t bytes) {
    return Buckets(make_resnet(config)->parameters(), {.first_bytes = bytes, .bytes = bytes}).layout_hash();
  };
  ResNetConfig config = resnet_config("resnet20");
  const uint64_t first = hash(config, 1 << 20);
  config.seed = 9;
  EXPECT_EQ(first, hash(config, 1 << 13)) << "the hash must not depend on seed and bucket size";
  config.num_classes = 11;
  EXPECT_NE(first, hash(config, 1 << 20)) << "one more class";
  EXPECT_NE(first, hash(resnet_config("resnet32"), 1 << 20));
}

void expect_error(const std::function<void()>& f, const std::string& part) {
  try {
    f();
    ADD_FAILURE() << "no error; expected one with: " << part;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(ResNet, RefusesInvalidArguments) {
  expect_error([] { resnet_config("resnet51"); }, "did you mean 'resnet50'");
  expect_error([] { resnet_config("vgg"); }, "resnet18");
  const ResNet model(resnet_config("resnet18"));
  expect_error([&] { model.forward(Var(Tensor::zeros({2, 28, 28, 3}))); }, "at least 32×32");
  expect_error([&] { model.forward(Var(Tensor::zeros({2, 32, 32, 1}))); }, "[n, h, w, 3]");
  expect_error([&] { model.forward(Var(Tensor::zeros({2, 3072}))); }, "[n, h, w, 3]");
  expect_error([&] { model.forward(Var(Tensor::zeros({2, 32, 32, 3}, DType::f64))); }, "x is float64");
  auto with = [](auto change) {
    ResNetConfig config = resnet_config("resnet20");
    change(config);
    return config;
  };
  expect_error([&] { make_resnet(with([](auto& c) { c.num_classes = 0; })); }, "num_classes");
  expect_error([&] { make_resnet(with([](auto& c) { c.in_channels = -1; })); }, "in_channels");
  expect_error([&] { make_resnet(with([](auto& c) { c.width = -1; })); }, "width");
  expect_error([&] { make_resnet(with([](auto& c) { c.blocks.clear(); })); }, "no stages");
  expect_error([&] { make_resnet(with([](auto& c) { c.blocks[1] = 0; })); }, "0 blocks");
  expect_error([&] { make_resnet(with([](auto& c) { c.dtype = DType::i32; })); }, "dtype");
  expect_error([&] { make_resnet(with([](auto& c) { c.dtype = DType::f16; })); }, "bf16 or f64");
  expect_error([&] { make_resnet(with([](auto& c) { c.bottleneck = true; })); }, "basic blocks");
}

}  // namespace resnet_test
}  // namespace godwit
