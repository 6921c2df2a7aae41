#include "models/vgg.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/models/image_golden.h"
#include "tests/support.h"

namespace godwit {
namespace vgg_test {

using test::golden_images;

VggConfig narrow(const std::string& name) {
  VggConfig config = vgg_config(name);
  config.stages = {{4, 4}, {8, 8}, {8, 8, 8}, {8, 8, 8}, {16, 16, 16}};
  config.hidden = 24;
  config.num_classes = 10;
  return config;
}

TEST(Vgg, NamesAndOrderMatchTorchvision) {
  const nlohmann::json golden = test::read_golden("vgg_vit_names.json");
  for (const std::string& name : vgg_names()) {
    SCOPED_TRACE(name);
    test::expect_names(golden[name], Vgg(vgg_config(name)));
  }
}

TEST(Vgg, WeightDecayAppliesOnlyToFiltersAndMatrices) {
  for (const Parameter& p : Vgg(narrow("vgg16_bn")).parameters())
    EXPECT_EQ(p.decay, p.var.shape().rank() > 1) << p.name;
}

TEST(Vgg, AcceptsImagesFrom32Pixels) {
  for (const std::string& name : vgg_names()) {
    VggConfig config = narrow(name);
    config.in_channels = 1;
    const auto model = make_vgg(config);
    EXPECT_EQ(model->smallest_image(), 32);
    NoGrad off;
    for (const int64_t side : {32, 50, 224}) {
      const Var logits = model->forward(Var(golden_images({2, side, side + 1, 1}, DType::f32)));
      ASSERT_EQ(logits.shape(), (Shape{2, 10})) << name;
      for (const float logit : logits.value().span<float>()) EXPECT_TRUE(std::isfinite(logit)) << name;
    }
  }
}

// Initial weights of torchvision: deviations of filters and matrices, zero biases.
TEST(Vgg, InitialWeightsMatchTorchvision) {
  VggConfig config = vgg_config("vgg16");
  config.stages = {{32}, {64}};
  config.hidden = 128;
  const auto model = make_vgg(config);
  for (const Parameter& p : model->parameters()) {
    const Shape& s = p.var.shape();
    double squares = 0, sum = 0;
    for (const float w : p.var.value().span<float>()) squares += w * w, sum += w;
    const double n = static_cast<double>(p.var.value().numel());
    const double expected = s.rank() == 4 ? std::sqrt(2.0 / static_cast<double>(s[0] * 9)) : s.rank() == 2 ? 0.01 : 0;
    EXPECT_NEAR(std::sqrt(squares / n), expected, 5 * expected / std::sqrt(2 * n))
        << p.name << ": five standard errors";
    EXPECT_NEAR(sum / n, 0, 5 * expected / std::sqrt(n)) << p.name;
  }
}

TEST(Vgg, DropsOnlyInTrainingPasses) {
  VggConfig config = narrow("vgg16");
  config.dropout = 0.5;
  const Vgg model(config);
  test::fill_by_formula(model);
  NoGrad off;
  const Var x(golden_images({4, 32, 32, 3}, DType::f32));
  const auto logits = [&](const DropoutContext* run) { return model.forward(x, run).value().to_vector<float>(); };
  const DropoutContext first{7, 3, 0}, next{7, 4, 0}, other_rank{7, 3, 1};
  const auto plain = logits(nullptr), dropped = logits(&first);
  EXPECT_EQ(logits(nullptr), plain);
  EXPECT_NE(dropped, plain);
  EXPECT_EQ(logits(&first), dropped);
  EXPECT_NE(logits(&next), dropped);
  EXPECT_NE(logits(&other_rank), dropped);
  config.dropout = 0;
  const Vgg without(config);
  test::fill_by_formula(without);
  EXPECT_EQ(without.forward(x, &first).value().to_vector<float>(), plain);
}

std::vector<double> losses(const std::string& name, DType dtype) {
  VggConfig config = narrow(name);
  config.dtype = dtype;
  return image_golden::losses_on_random_labels(*make_vgg(config), {8, 32, 32, 3}, 10, 40, 0.1);
}

TEST(Vgg, LearnsRandomLabels) {
  const std::vector<double> single = losses("vgg16_cifar", DType::f32), half = losses("vgg16_cifar", DType::bf16);
  EXPECT_LT(single.back(), 0.5 * single.front());
  EXPECT_LT(half.back(), 0.5 * half.front());
  EXPECT_NE(half.front(), single.front());
  EXPECT_NEAR(half.front(), single.front(), 0.05 * single.front());
}

TEST(Vgg, RefusesInvalidArguments) {
  EXPECT_THAT(error_of([] { vgg_config("vgg61"); }), ::testing::HasSubstr("did you mean 'vgg16'"));
  const Vgg model(narrow("vgg16"));
  const auto of_image = [&](Shape shape) { return error_of([&] { model.forward(Var(Tensor::zeros(shape))); }); };
  EXPECT_THAT(of_image({2, 31, 32, 3}), ::testing::HasSubstr("at least 32×32"));
  EXPECT_THAT(of_image({2, 32, 32, 1}), ::testing::HasSubstr("[n, h, w, 3]"));
  const auto with = [](auto change) {
    VggConfig config = narrow("vgg16");
    change(config);
    return error_of([&] { make_vgg(config); });
  };
  EXPECT_THAT(with([](VggConfig& c) { c.stages.clear(); }), ::testing::HasSubstr("no stages"));
  EXPECT_THAT(with([](VggConfig& c) { c.stages[1].clear(); }), ::testing::HasSubstr("has no convolutions"));
  EXPECT_THAT(with([](VggConfig& c) { c.stages[1][0] = 0; }), ::testing::HasSubstr("0 channels"));
  EXPECT_THAT(with([](VggConfig& c) { c.hidden = 0; }), ::testing::HasSubstr("hidden"));
  EXPECT_THAT(with([](VggConfig& c) { c.dropout = 1; }), ::testing::HasSubstr("dropout"));
  EXPECT_THAT(with([](VggConfig& c) { c.num_classes = 0; }), ::testing::HasSubstr("num_classes"));
  EXPECT_THAT(with([](VggConfig& c) { c.dtype = DType::f16; }), ::testing::HasSubstr("bf16 or f64"));
}

}  // namespace vgg_test
}  // namespace godwit
