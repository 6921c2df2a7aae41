// ConvolutionPlan: cuDNN's engine for one convolution, for a GPU or for the description of one.
#pragma once
#include <string>
#include <vector>

#include "engine/cuda/dnn.h"
#include "engine/cuda/dnn_descriptor.h"

namespace godwit {

constexpr int64_t kMostDnnWorkspace = 1ll << 30;  // bytes of GPU memory, while an operation runs

enum DnnUid : int64_t { kDnnX = 1, kDnnW = 2, kDnnY = 3, kDnnWideW = 4 };  // IDs of a plan's tensors

// The GPU that a plan is for: that of a handle, or a described one (device_properties()), without a driver. The other
// member is null.
struct DnnTarget {
  cudnnHandle_t handle = nullptr;
  const DnnDescriptor* properties = nullptr;
};

// A GPU described by a text in JSON, as cuDNN writes it. Throws an Error with cuDNN's reason; needs cuDNN 9.8.
DnnDescriptor device_properties(const std::string& json);

// What cuDNN states about an engine.
struct DnnEngine {
  int64_t index = -1;  // cuDNN's number, for operations of one kind
  std::vector<cudnnBackendNumericalNote_t> notes;
  bool compiled_at_run_time = false;

  bool has(cudnnBackendNumericalNote_t note) const;
};

// The first engine proposed by cuDNN that is deterministic, accumulates in float32 and can be built.
//
// A float32 filter gradient of bfloat16 images is a graph of two operations, because cuDNN 9.19 has no engine for one:
// the gradient as a virtual float32 tensor, and a copy of it.
//
// For a described GPU, engines that are compiled at run time are taken as proposed: building them needs a driver.
class ConvolutionPlan {
 public:
  ConvolutionPlan(DnnTarget target, const ConvolutionProblem& problem);

  const std::string& lacks() const { return lacks_; }  // reason why there is no engine; empty if there is one
  int64_t workspace() const { return workspace_; }     // bytes
  const DnnEngine& engine() const { return engine_; }
  size_t proposed() const { return proposed_; }  // number of engines proposed up to the chosen one

  // Runs the engine with the memory of `pack`. If its first run fails, selects the next engine and returns false; call
  // again, unless lacks(). Throws if an engine that has run before fails.
  bool execute(const DnnDescriptor& pack);

 private:
  DnnDescriptor operation_graph(const ConvolutionProblem& problem) const;
  std::vector<DnnDescriptor> proposals(cudnnBackendHeurMode_t mode);
  void advance();  // selects the next acceptable engine; sets lacks_ if there is none
  bool take(DnnDescriptor& config);
  bool refused(const DnnEngine& engine) const;

  const DnnTarget target_;
  const std::string description_;
  const bool tensor_cores_;
  bool ran_ = false;
  DnnDescriptor graph_, config_, plan_;
  DnnEngine engine_;
  std::vector<DnnDescriptor> proposals_;  // from the last heuristic mode
  size_t mode_ = 0, at_ = 0;              // indices of the next mode and proposal
  int64_t workspace_ = 0;
  size_t proposed_ = 0, passed_over_ = 0, too_large_ = 0, failed_ = 0;
  std::string why_, lacks_;
};

}  // namespace godwit
