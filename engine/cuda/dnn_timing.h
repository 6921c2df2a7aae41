// timed_plan(): the fastest of cuDNN's first engines for a convolution, measured once per GPU model and library
// version.
#pragma once
#include "engine/cuda/dnn_plan.h"

namespace godwit {

// Addresses of a convolution's tensors on the GPU.
struct DnnMemory {
  void *x, *w, *y;
  DnnDescriptor pack(const Tensor& workspace) const;  // for ConvolutionPlan::execute()
};

// Returns a plan with the engine that the ChoiceFile records for the problem. If no engine is recorded, or if the
// recorded engine does not run, the function times the first three engines that run, with the tensors at `at`, and
// records the fastest. If the choice cannot be recorded, or while a CUDA graph is captured, cuDNN's first proposal is
// used. Updates the thread's ConvolutionPaths.
ConvolutionPlan timed_plan(Cuda device, const ConvolutionProblem& problem, const DnnMemory& at);

}  // namespace godwit
