#include "nn/weights.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <map>

#include "autograd/ops/pooling/global_avg_pool.h"
#include "engine/context.h"
#include "engine/safetensors.h"
#include "models/resnet.h"
#include "tests/models/golden.h"
#include "tests/support.h"

namespace godwit {
namespace weights_test {

using test::expect_same_bits;

class Weights : public ::testing::Test {
 protected:
  std::string path(const std::string& file) const { return folder_ / file; }

  TempFolder folder_;
};

// The network stored in tiny.safetensors by make_golden.py.
class Tiny : public nn::Module {
 public:
  explicit Tiny(DType dtype = DType::f32)
      : conv_(2, 3, 3, {.stride = 2, .padding = 1}, dtype), bn_(3, dtype), fc_(3, 4, dtype) {
    add("conv", conv_);
    add("bn", bn_);
    add("fc", fc_);
  }
  Var forward(const Var& x) const { return fc_(ops::global_avg_pool(bn_(conv_(x), /*relu=*/true))); }

 private:
  nn::Conv2d conv_;
  nn::BatchNorm2d bn_;
  nn::Linear fc_;
};

std::map<std::string, Tensor> all_tensors(const nn::Module& module) {
  std::map<std::string, Tensor> result;
  for (const Parameter& p : module.parameters()) result[p.name] = p.var.value();
  for (const nn::NamedTensor& b : module.buffers()) result[b.name] = b.tensor;
  return result;
}

TEST_F(Weights, LoadsAFileOfPyTorch) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    Tiny tiny(dtype);
    nn::load_weights(test::golden_path("tiny.safetensors"), tiny);
    for (const auto& [name, tensor] : all_tensors(tiny)) {
      const Tensor expected(tensor.shape(), dtype);
      test::fill_by_formula(name, expected);
      expect_same_bits(tensor, expected, name);
    }
    tiny.train(false);
    NoGrad off;
    const Var logits = tiny.forward(Var(test::golden_images({2, 5, 5, 2}, dtype)));
    const std::vector<double> golden = test::read_golden("tiny.json")["logits"];
    ASSERT_EQ(logits.shape(), (Shape{2, 4}));
    // The golden logits are float32: sums of at most 18 products of order 1.
    for (size_t i = 0; i < golden.size(); ++i)
      EXPECT_NEAR(logits.value().item(static_cast<int64_t>(i)), golden[i], 2e-6);
  }
}

TEST_F(Weights, SavesTheFileThatPyTorchWouldSave) {
  Tiny tiny;
  test::fill_by_formula(tiny);
  nn::save_weights(path("ours.safetensors"), tiny);
  auto ours = load_safetensors(path("ours.safetensors")),
       theirs = load_safetensors(test::golden_path("tiny.safetensors"));
  EXPECT_EQ(theirs.erase("bn.num_batches_tracked"), 1u) << "PyTorch adds it if it is missing";
  ASSERT_EQ(ours.size(), theirs.size());
  for (const auto& [name, tensor] : theirs) expect_same_bits(ours.at(name), tensor, name);
}

TEST_F(Weights, RoundTripKeepsEveryBit) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    ResNetConfig config{.blocks = {1, 2}, .bottleneck = true, .num_classes = 3, .dtype = dtype};
    const auto saved = make_resnet(config);
    saved->buffers()[0].tensor.fill(-0.0);
    saved->buffers()[1].tensor.fill(-0.0);
    nn::save_weights(path("w.safetensors"), *saved);
    config.seed = 2;
    const auto loaded = make_resnet(config);
    nn::load_weights(path("w.safetensors"), *loaded);
    const auto after = all_tensors(*loaded);
    for (const auto& [name, tensor] : all_tensors(*saved)) expect_same_bits(after.at(name), tensor, name);
  }
}

// Buffers of a type that is not float32 or float64.
class Counted : public nn::Module {
 public:
  Tensor count = add_buffer("count", Tensor::zeros({3}, DType::i64));
  Tensor rounded = add_buffer("rounded", Tensor::zeros({2}, DType::bf16));
};

TEST_F(Weights, BuffersKeepTheirTypes) {
  Counted saved, loaded;
  saved.count.fill(7);
  saved.rounded.fill(-2.5);
  nn::save_weights(path("w.safetensors"), saved);
  nn::load_weights(path("w.safetensors"), loaded);
  expect_same_bits(loaded.count, saved.count, "count");
  expect_same_bits(loaded.rounded, saved.rounded, "rounded");
}

TEST_F(Weights, LoadReachesParametersBoundToBuckets) {
  Tiny saved, loaded;
  test::fill_by_formula(saved);
  nn::save_weights(path("w.safetensors"), saved);
  const Buckets source(saved.parameters(), {}), target(loaded.parameters(), {});
  EXPECT_NE(target.value_hash(), source.value_hash());
  nn::load_weights(path("w.safetensors"), loaded);
  EXPECT_EQ(target.value_hash(), source.value_hash());
}

TEST_F(Weights, OneErrorListsAllMismatches) {
  Tiny tiny;
  test::fill_by_formula(tiny);
  const auto before = all_tensors(tiny);
  std::vector<std::pair<std::string, Tensor>> file;
  for (const auto& [name, tensor] : load_safetensors(test::golden_path("tiny.safetensors"))) {
    if (name == "fc.bias") continue;
    if (name == "fc.weight") file.emplace_back(name, Tensor::zeros({5, 3}));
    else if (name == "bn.weight") file.emplace_back(name, Tensor::zeros({3}, DType::i32));
    else file.emplace_back(name, tensor.dtype() == DType::f32 ? Tensor::zeros(tensor.shape()) : tensor);
  }
  for (int i = 0; i < 7; ++i) file.emplace_back("extra" + std::to_string(i), Tensor::zeros({1}));
  save_safetensors(path("odd.safetensors"), file);
  const std::string text = error_of([&] { nn::load_weights(path("odd.safetensors"), tiny); });
  for (const char* part :
       {"odd.safetensors", "1 missing (fc.bias)", "7 unexpected (extra0, extra1, extra2, extra3, extra4, …)",
        "fc.weight is float32 [5, 3], expected float32 [4, 3]", "bn.weight is int32 [3]"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  const Tiny fresh;
  test::fill_by_formula(fresh);
  const auto expected = all_tensors(fresh);
  for (const auto& [name, tensor] : before) expect_same_bits(tensor, expected.at(name), name + " must be unchanged");
}

// The last layer keeps its values if the file has other classes or no last layer.
TEST_F(Weights, ReplaceableParametersKeepTheirValues) {
  const std::vector<std::string> head{"fc.weight", "fc.bias"};
  auto file = load_safetensors(test::golden_path("tiny.safetensors"));
  const auto load = [&] {
    save_safetensors(path("head.safetensors"), {file.begin(), file.end()});
    const Tiny tiny;
    const auto values = [&](const std::string& name) { return all_tensors(tiny).at(name).to_vector<float>(); };
    const std::vector<float> weight = values(head[0]), bias = values(head[1]);
    const bool kept = nn::load_weights(path("head.safetensors"), tiny, {}, head);
    EXPECT_EQ(values(head[0]) == weight, kept);
    EXPECT_EQ(values(head[1]) == bias, kept);
    return kept;
  };
  EXPECT_FALSE(load());
  file["fc.weight"] = Tensor::zeros({5, 3});
  EXPECT_TRUE(load());
  file.erase("fc.weight"), file.erase("fc.bias");
  EXPECT_TRUE(load());
  file.erase("bn.weight");
  EXPECT_NE(error_of([&] { load(); }).find("1 missing (bn.weight)"), std::string::npos);
}

TEST_F(Weights, RefusesFiltersInGodwitsLayoutIfShapesDiffer) {
  Tiny tiny;
  auto file = load_safetensors(test::golden_path("tiny.safetensors"));
  file["conv.weight"] = Tensor::zeros({3, 3, 3, 2});
  save_safetensors(path("nhwc.safetensors"), {file.begin(), file.end()});
  EXPECT_NE(error_of([&] { nn::load_weights(path("nhwc.safetensors"), tiny); }).find("expected float32 [3, 2, 3, 3]"),
            std::string::npos);
}

TEST_F(Weights, NamesATensorWithAValueThatIsNotFinite) {
  for (const DType type : {DType::f32, DType::f64}) {
    const Tiny tiny(type);
    for (const double value : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
      for (const char* name : {"fc.bias", "bn.running_var"}) {
        const Tensor tensor = all_tensors(tiny).at(name), old = tensor.clone();
        tensor.range(tensor.numel() - 1, 1).fill(value);
        nn::save_weights(path("a.safetensors"), tiny);
        EXPECT_EQ(error_of([&] { nn::load_weights(path("a.safetensors"), Tiny(type)); }),
                  path("a.safetensors") + ": " + name + " has a value that is infinite or NaN");
        tensor.copy_from(old);
      }
    }
  }
  const Tiny large(DType::f64);
  all_tensors(large).at("fc.bias").fill(1e300);
  nn::save_weights(path("a.safetensors"), large);
  EXPECT_EQ(error_of([&] { nn::load_weights(path("a.safetensors"), Tiny(DType::f32)); }),
            path("a.safetensors") + ": fc.bias has a value that is infinite or NaN in float32");
}

TEST_F(Weights, NamesMissingAndTruncatedFiles) {
  Tiny tiny;
  EXPECT_NE(error_of([&] { nn::load_weights(path("none.safetensors"), tiny); }).find("none.safetensors"),
            std::string::npos);
  nn::save_weights(path("cut.safetensors"), tiny);
  std::filesystem::resize_file(path("cut.safetensors"), std::filesystem::file_size(path("cut.safetensors")) - 1);
  EXPECT_NE(error_of([&] { nn::load_weights(path("cut.safetensors"), tiny); }).find("cut.safetensors"),
            std::string::npos);
}

TEST_F(Weights, NamesOfTheFileCanBeTranslated) {
  const Tiny model, renamed;
  test::fill_by_formula(model);
  nn::save_weights(path("own.safetensors"), model);
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& [name, tensor] : load_safetensors(path("own.safetensors")))
    tensors.emplace_back("x." + name, tensor);
  save_safetensors(path("other.safetensors"), tensors, {});
  nn::load_weights(path("other.safetensors"), renamed, [](const std::string& name) { return name.substr(2); });
  const auto expected = all_tensors(model);
  for (const auto& [name, tensor] : all_tensors(renamed)) expect_same_bits(tensor, expected.at(name), name);
  EXPECT_THAT(error_of([&] {
                nn::load_weights(path("own.safetensors"), renamed, [](const std::string&) { return "fc.bias"; });
              }),
              ::testing::HasSubstr("holds fc.bias under two names"));
}

}  // namespace weights_test
}  // namespace godwit
