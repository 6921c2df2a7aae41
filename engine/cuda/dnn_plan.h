// ConvolutionPlan: cuDNN's engine for one convolution, on a real or described GPU.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/cuda/dnn.h"
#include "engine/cuda/dnn_descriptor.h"

namespace godwit {

// Workspace limits in bytes: for all engines, and for timed engines after the first.
constexpr int64_t kMostDnnWorkspace = 1ll << 30, kMostTimedWorkspace = 256ll << 20;

enum DnnUid : int64_t { kDnnX = 1, kDnnW = 2, kDnnY = 3, kDnnWideW = 4 };  // IDs of a plan's tensors

// The GPU of a plan: the GPU of the cuDNN handle `handle`, or the GPU that `properties` describes
// (device_properties()), which needs no driver. Exactly one member is set.
struct DnnTarget {
  cudnnHandle_t handle = nullptr;
  const DnnDescriptor* properties = nullptr;
};

// Describes a GPU from JSON text in cuDNN's format. Needs cuDNN 9.8 or later. Throws an Error with cuDNN's reason.
DnnDescriptor device_properties(const std::string& json);

// Properties of an engine, as reported by cuDNN.
struct DnnEngine {
  int64_t index = -1;  // cuDNN's index among the engines for operations of one kind
  std::string name;    // number and settings, "67_k2=4_k3=0"; set only for engines chosen by name or by time
  std::vector<cudnnBackendNumericalNote_t> notes;
  bool compiled_at_run_time = false;

  bool has(cudnnBackendNumericalNote_t note) const;
};

// A cuDNN engine that is deterministic, accumulates in float32 and can be built. It is the first acceptable proposal,
// or the fastest of the first ones (select_fastest()).
//
// A float32 filter gradient of bfloat16 images needs a graph of two operations: the first computes the gradient as a
// virtual float32 tensor, the second copies this tensor. cuDNN 9.19 has no engine for the gradient alone.
//
// For a described GPU, engines that are compiled at run time are accepted without being built, because building needs a
// driver.
class ConvolutionPlan {
 public:
  // If `only` is not empty, only the engine of this name is accepted.
  ConvolutionPlan(DnnTarget target, const ConvolutionProblem& problem, std::string only = {});

  const std::string& no_engine_reason() const { return no_engine_reason_; }  // empty if an engine is selected
  int64_t workspace() const { return selected_.workspace; }                  // bytes
  const DnnEngine& engine() const { return selected_.engine; }
  size_t proposed() const { return proposed_; }  // number of proposals examined so far

  // Runs the engine with the memory of `pack` and returns true. If the first run of an engine fails, selects the next
  // engine and returns false; call execute() again if no_engine_reason() is empty. Throws if an engine that has already
  // run fails.
  bool execute(const DnnDescriptor& pack);

  // Like execute(), but a failure after a successful run also selects the next engine.
  bool attempt(const DnnDescriptor& pack);
  // Selects the fastest of the next `count` engines that run; ties go to the first. Engines after the first may use at
  // most kMostTimedWorkspace. `time` runs the selected engine with attempt() and returns its time, or nothing if the
  // run failed. The selection is final: later failures throw.
  void select_fastest(int count, const std::function<std::optional<double>()>& time);

 private:
  struct Selected {
    DnnDescriptor config, plan;
    DnnEngine engine;
    int64_t workspace = 0;
  };

  DnnDescriptor operation_graph(const ConvolutionProblem& problem) const;
  std::vector<DnnDescriptor> proposals(cudnnBackendHeurMode_t mode);
  void advance();  // selects the next acceptable engine; sets no_engine_reason_ if there is none
  bool take(DnnDescriptor& config);
  bool refused(const DnnEngine& engine) const;

  const DnnTarget target_;
  const std::string description_;
  const bool tensor_cores_;
  const std::string only_;
  bool ran_ = false;
  DnnDescriptor graph_;
  Selected selected_;
  std::vector<DnnDescriptor> proposals_;  // proposals of the last heuristic mode
  size_t mode_ = 0, at_ = 0;              // indices of the next mode and proposal
  size_t proposed_ = 0, passed_over_ = 0, too_large_ = 0, failed_ = 0;
  std::string last_error_, no_engine_reason_;
};

}  // namespace godwit
