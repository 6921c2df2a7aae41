#include "engine/cuda/dnn.h"

#include "engine/context.h"
#include "engine/cuda/cuda_context.h"
#include "engine/cuda/dnn_timing.h"

namespace godwit {
namespace {

constexpr int64_t kConvolution = 2;  // first cache key of this file in the context
constexpr int64_t kAlignment = 16;   // bytes

void* memory_of(const Tensor& t) {
  void* memory = t.dtype() == DType::bf16 ? static_cast<void*>(t.cuda_data<bf16>()) : t.cuda_data<float>();
  check(reinterpret_cast<uintptr_t>(memory) % kAlignment == 0, "conv2d: cuDNN needs memory aligned to ", kAlignment,
        " bytes; tensor ", t.shape(), " is at address ", memory);
  return memory;
}

}  // namespace

std::vector<int64_t> ConvolutionProblem::key(int64_t first) const {
  std::vector<int64_t> key{first,           static_cast<int64_t>(what), options.stride,
                           options.padding, options.dilation,           options.tf32};
  for (const Operand& operand : {x, w, y}) {
    key.push_back(static_cast<int64_t>(operand.dtype));
    key.insert(key.end(), operand.extents.begin(), operand.extents.end());
  }
  return key;
}

std::string describe(const ConvolutionProblem& problem) {
  constexpr const char* kNames[] = {"forward", "backward data", "backward filters"};
  const auto text = [](const ConvolutionProblem::Operand& operand) {
    const auto& e = operand.extents;
    return detail::concat(operand.dtype, " ", Shape{e[0], e[1], e[2], e[3]});
  };
  const ConvolutionOptions& options = problem.options;
  return detail::concat("conv2d ", kNames[static_cast<int>(problem.what)], ", x ", text(problem.x), ", weight ",
                        text(problem.w), ", y ", text(problem.y), ", stride ", options.stride, ", padding ",
                        options.padding, ", dilation ", options.dilation, options.tf32 ? ", TF32" : "");
}

std::string_view convolve(Cuda device, Convolution what, const ConvolutionOptions& options, const Tensor& x,
                          const Tensor& w, const Tensor& y) {
  const ConvolutionProblem problem{what, options, x, w, y};
  const DnnMemory at{memory_of(x), memory_of(w), memory_of(y)};
  auto& plan = device.context->cached<ConvolutionPlan>(problem.key(kConvolution), [&] {
    return context().dnn_timing ? timed_plan(device, problem, at)
                                : ConvolutionPlan({.handle = device.context->dnn()}, problem);
  });
  while (plan.no_engine_reason().empty()) {
    const Tensor room = workspace(device, plan.workspace());
    if (plan.execute(at.pack(room))) return {};
  }
  return plan.no_engine_reason();
}

}  // namespace godwit
