#include "models/vit.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "nn/weights.h"
#include "tests/models/image_golden.h"
#include "tests/support.h"

namespace godwit {
namespace vit_test {

using test::golden_images;

// 2×2 patches of 4×4 pixels.
VitConfig small() {
  VitConfig config{.hidden_dim = 12, .layers = 2, .heads = 2, .mlp_dim = 48, .patch_size = 4};
  config.height = config.width = 8;
  config.num_classes = 5;
  return config;
}

TEST(Vit, NamesAndOrderMatchTorchvision) {
  const nlohmann::json golden = test::read_golden("vgg_vit_names.json");
  for (const std::string& name : vit_names()) {
    SCOPED_TRACE(name);
    test::expect_names(golden[name], Vit(vit_config(name)));
  }
}

TEST(Vit, LoadsWeightsOfTimm) {
  const Vit model(small());
  nn::load_weights(test::golden_path("timm.safetensors"), model,
                   [&](const std::string& name) { return model.tensor_name(name); });
  NoGrad off;
  const auto expected = test::read_golden("timm.json")["logits"].get<std::vector<double>>();
  const Tensor logits = model.forward(Var(golden_images({2, 8, 8, 3}, DType::f32))).value();
  ASSERT_EQ(logits.numel(), std::ssize(expected));
  for (int64_t i = 0; i < logits.numel(); ++i)  // logits of order 1, two layers in float32
    EXPECT_NEAR(logits.item(i), expected[static_cast<size_t>(i)], 4e-6);
}

TEST(Vit, AcceptsOldAndTimmNames) {
  const Vit model(small());
  for (const Parameter& p : model.parameters()) EXPECT_EQ(model.tensor_name(p.name), p.name);
  EXPECT_EQ(model.tensor_name("encoder.layers.encoder_layer_1.mlp.linear_1.weight"),
            "encoder.layers.encoder_layer_1.mlp.0.weight");
  EXPECT_EQ(model.tensor_name("encoder.layers.encoder_layer_11.mlp.linear_2.bias"),
            "encoder.layers.encoder_layer_11.mlp.3.bias");
  EXPECT_EQ(model.tensor_name("blocks.3.ls1.gamma"), "encoder.layers.encoder_layer_3.ls1.gamma");
  EXPECT_EQ(model.tensor_name("fc_norm.weight"), "fc_norm.weight");
}

TEST(Vit, WeightDecayAppliesOnlyToFiltersAndMatrices) {
  for (const Parameter& p : Vit(small()).parameters()) {
    const int rank = p.var.shape().rank();
    EXPECT_EQ(p.decay, rank == 2 || rank == 4) << p.name;
  }
}

TEST(Vit, InitialWeightsMatchTorchvision) {
  const auto model = make_vit(small());
  std::map<std::string, double> deviation{
      {"class_token", 0}, {"conv_proj.weight", std::sqrt(1.0 / 48)}, {"conv_proj.bias", 0},
      {"encoder.pos_embedding", 0.02}, {"heads.head.weight", 0}, {"heads.head.bias", 0}};
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = "encoder.layers.encoder_layer_" + std::to_string(layer);
    deviation[at + ".self_attention.in_proj_weight"] = std::sqrt(2.0 / (12 + 36));
    deviation[at + ".self_attention.in_proj_bias"] = 0;
    deviation[at + ".self_attention.out_proj.weight"] = std::sqrt(1 / 36.0);
    deviation[at + ".self_attention.out_proj.bias"] = 0;
    deviation[at + ".mlp.0.weight"] = deviation[at + ".mlp.3.weight"] = std::sqrt(2.0 / (12 + 48));
    deviation[at + ".mlp.0.bias"] = deviation[at + ".mlp.3.bias"] = 1e-6;
  }
  size_t checked = 0;
  for (const Parameter& p : model->parameters()) {
    const auto found = deviation.find(p.name);
    if (found == deviation.end()) {  // layer norms
      EXPECT_NE(p.name.find("ln"), std::string::npos) << p.name;
      for (const float w : p.var.value().span<float>()) EXPECT_EQ(w, p.name.ends_with("weight")) << p.name;
      continue;
    }
    ++checked;
    double squares = 0;
    for (const float w : p.var.value().span<float>()) squares += w * w;
    const double n = static_cast<double>(p.var.value().numel());
    EXPECT_NEAR(std::sqrt(squares / n), found->second, 5 * found->second / std::sqrt(2 * n))
        << p.name << ": five standard errors";
  }
  EXPECT_EQ(checked, deviation.size());
}

TEST(Vit, DropsOnlyInTrainingPasses) {
  VitConfig config = small();
  const auto logits = [&](double dropout, double attention, const DropoutContext* run) {
    config.dropout = dropout, config.attention_dropout = attention;
    const Vit model(config);
    test::fill_by_formula(model);
    NoGrad off;
    return model.forward(Var(golden_images({3, 8, 8, 3}, DType::f32)), run).value().to_vector<float>();
  };
  const DropoutContext first{7, 3, 0}, next{7, 4, 0};
  const auto plain = logits(0, 0, nullptr);
  EXPECT_EQ(logits(0, 0, &first), plain);
  EXPECT_EQ(logits(0.3, 0.3, nullptr), plain);
  for (const auto& [p, q] : {std::pair{0.3, 0.0}, {0.0, 0.3}}) {
    const auto dropped = logits(p, q, &first);
    EXPECT_NE(dropped, plain);
    EXPECT_EQ(logits(p, q, &first), dropped);
    EXPECT_NE(logits(p, q, &next), dropped);
  }
}

TEST(Vit, TreatsImagesOfABatchIndependently) {
  VitConfig config = small();
  config.height = 12, config.in_channels = 1;
  const Vit model(config);
  test::fill_by_formula(model);
  NoGrad off;
  const Tensor x = golden_images({3, 12, 8, 1}, DType::f32);
  const Tensor all = model.forward(Var(x)).value(), last = model.forward(Var(x.rows(2, 1))).value();
  for (int64_t i = 0; i < 5; ++i) EXPECT_NEAR(all.item(10 + i), last.item(i), 1e-5);
}

std::vector<double> losses(DType dtype) {
  VitConfig config = small();
  config.dtype = dtype, config.dropout = 0.05;
  return image_golden::losses_on_random_labels(*make_vit(config), {8, 8, 8, 3}, 5, 150, 0.3);
}

TEST(Vit, LearnsRandomLabels) {
  const std::vector<double> single = losses(DType::f32), half = losses(DType::bf16);
  EXPECT_NEAR(single.front(), std::log(5), 1e-6) << "the initial head is 0";
  EXPECT_LT(single.back(), 0.5 * single.front());
  EXPECT_LT(half.back(), 0.5 * half.front());
  EXPECT_NE(half.back(), single.back());
}

TEST(Vit, RefusesInvalidArguments) {
  EXPECT_THAT(error_of([] { vit_config("vit_tyni"); }), ::testing::HasSubstr("did you mean 'vit_tiny'"));
  const Vit model(small());
  const auto of_image = [&](Shape shape) { return error_of([&] { model.forward(Var(Tensor::zeros(shape))); }); };
  EXPECT_THAT(of_image({2, 8, 12, 3}), ::testing::HasSubstr("must be 8×8"));
  EXPECT_THAT(of_image({2, 8, 8, 1}), ::testing::HasSubstr("[n, h, w, 3]"));
  const auto with = [](auto change) {
    VitConfig config = small();
    change(config);
    return error_of([&] { make_vit(config); });
  };
  EXPECT_THAT(with([](VitConfig& c) { c.heads = 5; }), ::testing::HasSubstr("does not divide into 5 heads"));
  EXPECT_THAT(with([](VitConfig& c) { c.layers = 0; }), ::testing::HasSubstr("layers"));
  EXPECT_THAT(with([](VitConfig& c) { c.patch_size = 3; }), ::testing::HasSubstr("patches of 3×3"));
  EXPECT_THAT(with([](VitConfig& c) { c.patch_size = 0; }), ::testing::HasSubstr("patch"));
  EXPECT_THAT(with([](VitConfig& c) { c.dropout = 1; }), ::testing::HasSubstr("dropout"));
  EXPECT_THAT(with([](VitConfig& c) { c.attention_dropout = -0.1; }), ::testing::HasSubstr("attention_dropout"));
  EXPECT_THAT(with([](VitConfig& c) { c.num_classes = 0; }), ::testing::HasSubstr("num_classes"));
  EXPECT_THAT(with([](VitConfig& c) { c.dtype = DType::i32; }), ::testing::HasSubstr("dtype"));
}

}  // namespace vit_test
}  // namespace godwit
