// timed_plan(): the fastest of cuDNN's first engines for a convolution, chosen once per GPU and version of the
// libraries.
#pragma once
#include "engine/cuda/dnn_plan.h"

namespace godwit {

// Addresses of a convolution's tensors on the GPU.
struct DnnMemory {
  void *x, *w, *y;
  DnnDescriptor pack(const Tensor& workspace) const;  // for ConvolutionPlan::execute()
};

// The engine recorded in the file of choices for the problem. If there is none, or if it does not run, times the first
// three engines that run, with the tensors at `at`, and records the fastest. If it cannot be recorded, or while a CUDA
// graph is captured, the first engine that cuDNN proposes. The thread's ConvolutionPaths report the result.
ConvolutionPlan timed_plan(Cuda device, const ConvolutionProblem& problem, const DnnMemory& at);

}  // namespace godwit
