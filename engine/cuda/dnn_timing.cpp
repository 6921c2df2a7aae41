#include "engine/cuda/dnn_timing.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cctype>

#include "engine/choice_file.h"
#include "engine/cuda/cuda_context.h"

namespace godwit {
namespace {

constexpr int kTimed = 3;             // engines per problem
constexpr int kRuns = 5;              // timed runs per engine, after an untimed run
const std::vector<int64_t> kFile{4};  // cache key in the context

// The GPU and library versions, which the fastest engine of a problem depends on.
std::string machine(const CudaContext& context) {
  cudaDeviceProp properties{};
  int major = 0, minor = 0, driver = 0, runtime = 0;
  cuda_check(cudaGetDeviceProperties(&properties, context.index), "cudaGetDeviceProperties");
  const auto attribute = [&](int& value, cudaDeviceAttr name) {
    cuda_check(cudaDeviceGetAttribute(&value, name, context.index), "cudaDeviceGetAttribute");
  };
  attribute(major, cudaDevAttrComputeCapabilityMajor);
  attribute(minor, cudaDevAttrComputeCapabilityMinor);
  cuda_check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cuda_check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  return detail::concat(properties.name, ", ", major, ".", minor, ", ", context.multiprocessors,
                        " multiprocessors, cuDNN ", cudnnGetVersion(), ", CUDA driver ", driver, ", runtime ", runtime);
}

ChoiceFile choice_file(const CudaContext& context) {
  const std::string owner = machine(context);
  std::string name = "convolutions-";
  for (const char c : owner) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '.') name += c;
    else if (name.back() != '-') name += '-';
  }
  const std::string folder = cache_folder();
  return {folder.empty() ? "" : folder + "/" + name.substr(0, 200) + ".txt", owner};
}

// Runs the selected engine once, then kRuns times with an event before and after each run. Waits, and returns the
// shortest time in seconds.
std::optional<double> time(Cuda device, ConvolutionPlan& plan, const DnnMemory& at) {
  const Tensor room = workspace(device, plan.workspace());
  const DnnDescriptor pack = at.pack(room);
  if (!plan.attempt(pack)) return {};
  std::vector<CudaEvent> events;
  events.emplace_back(true).record(device.stream);
  for (int i = 0; i < kRuns; ++i) {
    if (!plan.attempt(pack)) return {};
    events.emplace_back(true).record(device.stream);
  }
  cuda_check(events.back().synchronize(), "cudaEventSynchronize");
  double least = events[1].seconds_since(events[0]);
  for (size_t i = 2; i < events.size(); ++i) least = std::min(least, events[i].seconds_since(events[i - 1]));
  return least;
}

// The plan with the engine of this name, if it runs.
std::optional<ConvolutionPlan> named_plan(Cuda device, const ConvolutionProblem& problem, const DnnMemory& at,
                                          const std::string& name) {
  std::optional<ConvolutionPlan> plan(std::in_place, DnnTarget{.handle = device.context->dnn()}, problem, name);
  if (plan->no_engine_reason().empty() && plan->execute(at.pack(workspace(device, plan->workspace())))) return plan;
  return {};
}

}  // namespace

DnnDescriptor DnnMemory::pack(const Tensor& workspace) const {
  DnnDescriptor made(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  made.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {kDnnX, kDnnW, kDnnY});
  made.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, {x, w, y});
  made.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {workspace.address()});
  made.finalize();
  return made;
}

ConvolutionPlan timed_plan(Cuda device, const ConvolutionProblem& problem, const DnnMemory& at) {
  ConvolutionPaths& paths = device.context->convolutions;
  const DnnTarget target{.handle = device.context->dnn()};
  if (device.context->graph_capture) return ConvolutionPlan(target, problem);
  const ChoiceFile& file = device.context->cached<ChoiceFile>(kFile, [&] { return choice_file(*device.context); });
  const Choices choices = file.read();
  if (!choices.damage.empty()) paths.damaged = detail::concat(file.path(), ": ", choices.damage);
  const std::string key = describe(problem);
  const auto found = choices.values.find(key);
  const std::string known = found == choices.values.end() ? "" : found->second;
  if (!known.empty())
    if (auto plan = named_plan(device, problem, at, known)) return std::move(*plan);
  if (!paths.untimed.empty()) return ConvolutionPlan(target, problem);

  ConvolutionPlan plan(target, problem);
  plan.select_fastest(kTimed, [&] { return time(device, plan, at); });
  if (!plan.no_engine_reason().empty()) return plan;
  const std::string& fastest = plan.engine().name;
  try {
    const std::string recorded = file.record(key, fastest, known);
    ++paths.timed;
    if (recorded != fastest)  // another rank was first to record a choice
      if (auto other = named_plan(device, problem, at, recorded)) return std::move(*other);
    return plan;
  } catch (const Error& error) {
    paths.untimed = error.what();
    return ConvolutionPlan(target, problem);
  }
}

}  // namespace godwit
