// cuDNN's planner without a driver: engines for the convolutions of ResNet-18 and ResNet-50 on described GPUs.
#include "engine/cuda/dnn_plan.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

namespace godwit {
namespace dnn_plan_test {

constexpr int64_t kBatch = 32;
constexpr int64_t kMiB = 1 << 20;

struct Layer {
  int64_t size, in, out, kernel, stride;  // of square images
  bool operator<(const Layer& o) const {
    return std::tie(size, in, out, kernel, stride) < std::tie(o.size, o.in, o.out, o.kernel, o.stride);
  }
};

// The convolutions of torchvision's ResNet-18 (two 3 × 3 per block) and ResNet-50 (1 × 1, 3 × 3, 1 × 1 with four times
// the width) for images of 224 × 224.
void add_resnet(const std::vector<int64_t>& blocks, bool bottleneck, std::set<Layer>& layers) {
  layers.insert({224, 3, 64, 7, 2});
  int64_t size = 56, in = 64, width = 64;
  for (size_t stage = 0; stage < blocks.size(); ++stage, width *= 2)
    for (int64_t block = 0; block < blocks[stage]; ++block) {
      const int64_t stride = stage > 0 && block == 0 ? 2 : 1, out = bottleneck ? 4 * width : width;
      if (bottleneck) layers.insert({size, in, width, 1, 1});
      layers.insert({size, bottleneck ? width : in, width, 3, stride});
      if (in != out || stride != 1) layers.insert({size, in, out, 1, stride});
      size /= stride;
      layers.insert(bottleneck ? Layer{size, width, out, 1, 1} : Layer{size, width, width, 3, 1});
      in = out;
    }
}

std::set<Layer> resnet_layers() {
  std::set<Layer> layers;
  add_resnet({3, 4, 6, 3}, true, layers);
  EXPECT_EQ(layers.size(), 23u);
  add_resnet({2, 2, 2, 2}, false, layers);
  EXPECT_EQ(layers.size(), 29u);
  return layers;
}

ConvolutionProblem problem_of(const Layer& layer, Convolution what, DType images, DType filters, bool tf32) {
  const int64_t padding = layer.kernel / 2, size = (layer.size + 2 * padding - layer.kernel) / layer.stride + 1;
  return {what,
          {layer.stride, padding, 1, tf32},
          {images, {kBatch, layer.size, layer.size, layer.in}},
          {filters, {layer.out, layer.kernel, layer.kernel, layer.in}},
          {images, {kBatch, size, size, layer.out}}};
}

constexpr const char* kNoDriverLibrary =
    "without libcuda.so cuDNN proposes no engines that it compiles at run time; add the folder of the toolkit's "
    "libcuda.so (lib64/stubs) to LD_LIBRARY_PATH, as ctest does";
bool has_driver_library() { return dlopen("libcuda.so.1", RTLD_LAZY) || dlopen("libcuda.so", RTLD_LAZY); }

class DnnPlans : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (CUDNN_VERSION < 90800) GTEST_SKIP() << "cuDNN " << CUDNN_VERSION << " cannot plan for a described GPU";
    std::ifstream file(std::string(GODWIT_SOURCE_DIR "/tests/cuda_build/") + GetParam());
    std::stringstream text;
    text << file.rdbuf();
    properties_ = device_properties(text.str());
  }
  void TearDown() override {
    for (const auto& [name, shapes] : without_tensor_cores_)
      EXPECT_LE(shapes.size(), 2u) << name << ": too many of 29 shapes have no tensor cores: "
                                   << testing::PrintToString(shapes);
    for (const auto& [name, engines] : engines_) {
      std::cout << GetParam() << ", " << name << ", engine x shapes:";
      for (const auto& [engine, count] : engines) std::cout << " " << engine << " x " << count;
      std::cout << ", of at most " << latest_[name] << " proposals, with a workspace of at most " << largest_[name]
                << " bytes\n";
    }
  }

  // A plan must exist and sum in float32 in a fixed order. Without `tensor_cores` the plan must not use tensor cores.
  // Otherwise all shapes of a kind but one or two use them; for these, cuDNN 9.19 expects another engine to be faster.
  void expect_plan(const char* type, const ConvolutionProblem& problem, bool tensor_cores) {
    SCOPED_TRACE(describe(problem));
    const ConvolutionPlan plan({.properties = &properties_}, problem);
    ASSERT_EQ(plan.no_engine_reason(), "");
    const DnnEngine& engine = plan.engine();
    EXPECT_FALSE(engine.has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
    EXPECT_FALSE(engine.has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION));
    EXPECT_FALSE(engine.has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS));
    EXPECT_LE(plan.workspace(), 256 * kMiB);
    static const char* const kNames[] = {"forward", "data gradient", "filter gradient"};
    const std::string name = std::string(type) + " " + kNames[static_cast<int>(problem.what)];
    const bool has = engine.has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    EXPECT_TRUE(tensor_cores || !has) << "engine " << engine.index;
    if (tensor_cores && !has) without_tensor_cores_[name].push_back(describe(problem));
    ++engines_[name][detail::concat(engine.index, engine.compiled_at_run_time ? " (compiled at run time)" : "")];
    latest_[name] = std::max(latest_[name], plan.proposed());
    largest_[name] = std::max(largest_[name], plan.workspace());
  }

  // The number of engines that are timed for a problem. Their names must differ, and each name must find its engine.
  size_t timed_engines(const ConvolutionProblem& problem) {
    SCOPED_TRACE(describe(problem));
    ConvolutionPlan plan({.properties = &properties_}, problem);
    std::map<std::string, int64_t> workspaces;
    std::string last;
    plan.select_fastest(3, [&] {
      last = plan.engine().name;
      EXPECT_TRUE(workspaces.emplace(last, plan.workspace()).second) << last;
      return std::optional(-static_cast<double>(workspaces.size()));
    });
    EXPECT_EQ(plan.no_engine_reason(), "");
    EXPECT_EQ(plan.engine().name, last);
    if (last.find("_k") != std::string::npos) ++with_settings_;
    for (const auto& [name, workspace] : workspaces) {
      const ConvolutionPlan again({.properties = &properties_}, problem, name);
      EXPECT_EQ(again.no_engine_reason(), "") << name;
      EXPECT_EQ(again.engine().name, name);
      EXPECT_EQ(again.workspace(), workspace) << name;
    }
    EXPECT_NE(ConvolutionPlan({.properties = &properties_}, problem, last + "_k999=1").no_engine_reason(), "");
    return workspaces.size();
  }

  DnnDescriptor properties_;
  int with_settings_ = 0;  // problems whose last timed engine has settings in its name
  std::map<std::string, std::map<std::string, int>> engines_;
  std::map<std::string, std::vector<std::string>> without_tensor_cores_;
  std::map<std::string, size_t> latest_;
  std::map<std::string, int64_t> largest_;
};

constexpr Convolution kAll[] = {Convolution::forward, Convolution::backward_data, Convolution::backward_filter};

TEST_P(DnnPlans, Float32LayersHaveEnginesWithoutTensorCores) {
  for (const Layer& layer : resnet_layers())
    for (const Convolution what : kAll)
      expect_plan("float32", problem_of(layer, what, DType::f32, DType::f32, false), false);
}

TEST_P(DnnPlans, Float32LayersWithTf32HaveTensorCores) {
  for (const Layer& layer : resnet_layers())
    for (const Convolution what : kAll)
      expect_plan("TF32", problem_of(layer, what, DType::f32, DType::f32, true), true);
}

TEST_P(DnnPlans, Bfloat16LayersHaveTensorCores) {
  for (const Layer& layer : resnet_layers())
    for (const Convolution what : kAll)
      expect_plan("bfloat16", problem_of(layer, what, DType::bf16, DType::bf16, false), true);
}

// The route of filter gradients in training: the stem, with three channels, has a bfloat16 result, the others float32.
TEST_P(DnnPlans, Float32FilterGradientsOfBfloat16LayersHaveTensorCoresExceptTheStem) {
  ASSERT_TRUE(has_driver_library()) << kNoDriverLibrary;
  for (const Layer& layer : resnet_layers()) {
    const ConvolutionProblem problem = problem_of(layer, Convolution::backward_filter, DType::bf16, DType::f32, false);
    if (layer.in % 8 == 0) {
      expect_plan("bfloat16 to float32", problem, true);
    } else {
      EXPECT_NE(ConvolutionPlan({.properties = &properties_}, problem).no_engine_reason(), "") << describe(problem);
    }
  }
}

// cuDNN plans these problems, but computed wrong values for convolutions between 4 and 8 channels.
TEST_P(DnnPlans, Float32FilterGradientsOfBfloat16ImagesNeedChannelsInMultiplesOf8) {
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{4, 8}, {8, 4}, {12, 12}}) {
    const ConvolutionProblem problem =
        problem_of({9, in, out, 3, 1}, Convolution::backward_filter, DType::bf16, DType::f32, false);
    EXPECT_THAT(ConvolutionPlan({.properties = &properties_}, problem).no_engine_reason(),
                testing::HasSubstr("multiples of 8"));
  }
}

TEST_P(DnnPlans, FactorsOfTwoTypesAreRefused) {
  const ConvolutionProblem problem =
      problem_of({56, 64, 64, 3, 1}, Convolution::forward, DType::bf16, DType::f32, false);
  const ConvolutionPlan plan({.properties = &properties_}, problem);
  EXPECT_THAT(plan.no_engine_reason(), testing::HasSubstr("are not deterministic in float32"));
  EXPECT_EQ(plan.engine().index, -1);
}

TEST_P(DnnPlans, TimedEnginesAreFoundByTheirNames) {
  for (const DType type : {DType::bf16, DType::f32}) {
    std::map<size_t, int> shapes;  // [number of engines]
    for (const Layer& layer : resnet_layers())
      for (const Convolution what : kAll) ++shapes[timed_engines(problem_of(layer, what, type, type, false))];
    EXPECT_GT(shapes[3], 29 * 3 / 2) << type;
  }
  EXPECT_GT(with_settings_, 29 * 3);
  ASSERT_TRUE(has_driver_library()) << kNoDriverLibrary;
  const ConvolutionProblem compiled =
      problem_of({56, 64, 64, 3, 1}, Convolution::backward_filter, DType::bf16, DType::f32, false);
  EXPECT_GT(timed_engines(compiled), 0u);
}

INSTANTIATE_TEST_SUITE_P(DescribedGpus, DnnPlans, testing::Values("h100.json", "a100.json"),
                         [](const auto& tested) { return std::string(tested.param, 4); });

TEST(DeviceProperties, DamagedDescriptionsAreRefused) {
  if (CUDNN_VERSION < 90800) GTEST_SKIP() << "cuDNN " << CUDNN_VERSION << " cannot plan for a described GPU";
  EXPECT_THROW(device_properties("{\"deviceVer\":"), std::exception);
}

}  // namespace dnn_plan_test
}  // namespace godwit
