#include "engine/cuda/dnn_plan.h"

#include <algorithm>

#if CUDNN_VERSION < 90100
#error "Godwit needs cuDNN 9.1 or newer"
#endif

namespace godwit {
namespace {

constexpr int64_t kAlignment = 16;  // bytes
constexpr int64_t kChannelUnit = 8;

// cuDNN's identifiers of one kind of operation.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t alpha, beta, convolution, x, w, y;
};

const Names& names_of(Convolution what) {
  static const Names names[] = {
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};
  return names[static_cast<int>(what)];
}

cudnnDataType_t library_type(DType dtype) {
  check(dtype == DType::f32 || dtype == DType::bf16, "conv2d: cuDNN takes float32 or bfloat16 here, not ", dtype);
  return dtype == DType::f32 ? CUDNN_DATA_FLOAT : CUDNN_DATA_BFLOAT16;
}

// cuDNN orders extents as n, c, h, w, independent of the memory layout. A virtual tensor has no memory.
DnnDescriptor tensor_descriptor(DnnUid uid, const ConvolutionProblem::Operand& operand, bool is_virtual = false) {
  const auto [n, h, w, c] = operand.extents;
  DnnDescriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, {uid});
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, library_type(operand.dtype));
  made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {kAlignment});
  made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, {n, c, h, w});
  made.set(CUDNN_ATTR_TENSOR_STRIDES, {h * w * c, 1, w * c, c});
  if (is_virtual) made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, true);
  made.finalize();
  return made;
}

DnnDescriptor convolution_descriptor(const ConvolutionOptions& options) {
  DnnDescriptor made(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  made.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  made.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2});
  made.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {options.stride, options.stride});
  made.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {options.padding, options.padding});
  made.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {options.padding, options.padding});
  made.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, {options.dilation, options.dilation});
  made.finalize();
  return made;
}

DnnDescriptor convolution_operation(const ConvolutionProblem& problem, const DnnDescriptor& w) {
  const Names& names = names_of(problem.what);
  DnnDescriptor operation(names.operation);
  operation.set(names.alpha, CUDNN_TYPE_FLOAT, 1.f);
  operation.set(names.beta, CUDNN_TYPE_FLOAT, 0.f);
  operation.set(names.convolution, convolution_descriptor(problem.options));
  operation.set(names.x, tensor_descriptor(kDnnX, problem.x));
  operation.set(names.w, w);
  operation.set(names.y, tensor_descriptor(kDnnY, problem.y));
  operation.finalize_if_supported("the operation");
  return operation;
}

// Copies a float32 tensor.
DnnDescriptor copy_operation(const DnnDescriptor& from, const DnnDescriptor& to) {
  DnnDescriptor identity(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  identity.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_IDENTITY);
  identity.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  identity.finalize();
  DnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, identity);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, from);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to);
  operation.finalize_if_supported("the copy");
  return operation;
}

template <class Note>
std::vector<Note> notes_of(const DnnDescriptor& engine, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, size_t most) {
  std::vector<Note> notes(most);
  const int64_t count = engine.read(name, type, static_cast<int64_t>(most), notes.data());
  notes.resize(std::min(most, static_cast<size_t>(count)));
  return notes;
}

DnnEngine engine_of(const DnnDescriptor& config) {
  DnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t into = engine.get();
  config.read(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &into);
  DnnEngine found;
  engine.read(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &found.index);
  found.notes = notes_of<cudnnBackendNumericalNote_t>(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                      CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  const auto behavior = notes_of<cudnnBackendBehaviorNote_t>(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                                             CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  found.compiled_at_run_time =
      std::find(behavior.begin(), behavior.end(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != behavior.end();
  return found;
}

// The engine's number and its settings ("knobs"), which identify it among cuDNN's proposals.
std::string name_of(const DnnDescriptor& config, int64_t index) {
  constexpr auto kKnobs = CUDNN_ATTR_ENGINECFG_KNOB_CHOICES;
  std::vector<DnnDescriptor> knobs;
  std::vector<cudnnBackendDescriptor_t> into;
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; ++i)
    into.push_back(knobs.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR).get());
  const int64_t count = config.read(kKnobs, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(into), into.data());
  knobs.resize(static_cast<size_t>(std::min(count, std::ssize(into))));
  std::string name = std::to_string(index);
  for (const DnnDescriptor& knob : knobs) {
    cudnnBackendKnobType_t type{};
    int64_t value = 0;
    knob.read(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    knob.read(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
    name += detail::concat("_k", static_cast<int>(type), "=", value);
  }
  return name;
}

int64_t workspace_of(const DnnDescriptor& descriptor, cudnnBackendAttributeName_t name) {
  int64_t bytes = 0;
  descriptor.read(name, CUDNN_TYPE_INT64, 1, &bytes);
  return bytes;
}

}  // namespace

DnnDescriptor device_properties(const std::string& json) {
#if CUDNN_VERSION < 90800
  fail("device_properties: cuDNN ", CUDNN_VERSION, " cannot plan for a described GPU; use cuDNN 9.8 or newer");
#else
  DnnDescriptor made(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  made.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, static_cast<int64_t>(json.size()), json.data());
  made.finalize();
  return made;
#endif
}

bool DnnEngine::has(cudnnBackendNumericalNote_t note) const {
  return std::find(notes.begin(), notes.end(), note) != notes.end();
}

ConvolutionPlan::ConvolutionPlan(DnnTarget target, const ConvolutionProblem& problem, std::string only)
    : target_(target),
      description_(describe(problem)),
      tensor_cores_(problem.options.tf32 || problem.y.dtype == DType::bf16),
      only_(std::move(only)) {
  try {
    graph_ = operation_graph(problem);
    advance();
  } catch (const DnnNotSupported& answer) {
    no_engine_reason_ = answer.what();
  }
}

DnnDescriptor ConvolutionPlan::operation_graph(const ConvolutionProblem& problem) const {
  std::vector<DnnDescriptor> operations;
  const DnnDescriptor w = tensor_descriptor(kDnnW, problem.w);
  if (problem.what == Convolution::backward_filter && problem.w.dtype == DType::f32 && problem.y.dtype == DType::bf16) {
    // With 4 channels, cuDNN 9.19 computed wrong values on an H200 (2026-11-27), without an error.
    if (problem.x.extents[3] % kChannelUnit != 0 || problem.y.extents[3] % kChannelUnit != 0)
      throw DnnNotSupported(
          "cuDNN's float32 filter gradients of bfloat16 images can be wrong unless channels are multiples of 8");
    const DnnDescriptor wide = tensor_descriptor(kDnnWideW, problem.w, true);
    operations.push_back(convolution_operation(problem, wide));
    operations.push_back(copy_operation(wide, w));
  } else {
    operations.push_back(convolution_operation(problem, w));
  }
  std::vector<cudnnBackendDescriptor_t> given;
  for (const DnnDescriptor& operation : operations) given.push_back(operation.get());
  DnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (target_.handle) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target_.handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(given.size()),
            given.data());
  graph.finalize_if_supported("its graph");
  return graph;
}

// Whether to reject an engine because of its numerical notes: nondeterministic sums, reduced precision, or transforms
// that lose precision.
bool ConvolutionPlan::refused(const DnnEngine& engine) const {
  return std::any_of(engine.notes.begin(), engine.notes.end(), [&](cudnnBackendNumericalNote_t note) {
    if (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE) return !tensor_cores_;
    return note != CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP;
  });
}

// The engines that cuDNN proposes for the graph, fastest first by cuDNN's estimate. Sets last_error_ if there are none.
std::vector<DnnDescriptor> ConvolutionPlan::proposals(cudnnBackendHeurMode_t mode) {
  std::vector<DnnDescriptor> configs;
  try {
    DnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
#if CUDNN_VERSION >= 90800
    if (target_.properties) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target_.properties);
#endif
    heuristics.finalize_if_supported("cudnnBackendFinalize");
    const auto count = heuristics.read<cudnnBackendDescriptor_t>(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
    std::vector<cudnnBackendDescriptor_t> into;
    for (int64_t i = 0; i < count; ++i) into.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
    const int64_t given =
        heuristics.read(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, into.data());
    configs.resize(static_cast<size_t>(std::min(given, count)));
    return configs;
  } catch (const DnnNotSupported& answer) {
    last_error_ = detail::concat("; cuDNN's heuristics reported ", answer.what());
    return {};
  }
}

void ConvolutionPlan::advance() {
  constexpr std::array kModes{CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
  for (;; ++at_) {
    while (at_ == proposals_.size() && mode_ < kModes.size()) {
      proposals_ = proposals(kModes[mode_++]);
      at_ = 0;
    }
    if (at_ == proposals_.size()) break;
    ++proposed_;
    try {
      if (take(proposals_[at_])) return ++at_, void();
    } catch (const DnnNotSupported& answer) {
      last_error_ = detail::concat("; the last engine reported ", answer.what());
    }
  }
  no_engine_reason_ =
      detail::concat("of ", proposed_, " engines ", passed_over_, " are not deterministic in float32, ", too_large_,
                     " need more than ", kMostDnnWorkspace, " bytes, ", failed_, " failed to run", last_error_);
}

bool ConvolutionPlan::take(DnnDescriptor& config) {
  DnnEngine engine = engine_of(config);
  if (refused(engine)) return ++passed_over_, false;
  if (!only_.empty() && (engine.name = name_of(config, engine.index)) != only_) return false;
  DnnDescriptor plan;
  int64_t bytes = 0;
  if (target_.properties && engine.compiled_at_run_time) {
    bytes = workspace_of(config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
  } else {
    plan = DnnDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (target_.handle) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target_.handle);
#if CUDNN_VERSION >= 90800
    if (target_.properties) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target_.properties);
#endif
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    plan.finalize_if_supported("cudnnBackendFinalize");
    bytes = workspace_of(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  }
  if (bytes > kMostDnnWorkspace) return ++too_large_, false;
  selected_ = {std::move(config), std::move(plan), std::move(engine), bytes};
  return true;
}

bool ConvolutionPlan::execute(const DnnDescriptor& pack) {
  if (!attempt(pack)) return false;
  ran_ = true;
  proposals_.clear();
  return true;
}

void ConvolutionPlan::select_fastest(int count, const std::function<std::optional<double>()>& time) {
  Selected fastest;
  double least = 0;
  for (int timed = 0; timed < count && no_engine_reason_.empty();) {
    if (timed > 0 && selected_.workspace > kMostTimedWorkspace) {
      advance();
      continue;
    }
    selected_.engine.name = name_of(selected_.config, selected_.engine.index);
    const std::optional<double> taken = time();
    if (!taken) continue;  // attempt() has selected the next engine
    if (timed++ == 0 || *taken < least) {
      least = *taken;
      fastest = std::move(selected_);
    }
    advance();
  }
  if (fastest.engine.index < 0) return;
  selected_ = std::move(fastest);
  no_engine_reason_.clear();
  ran_ = true;
  proposals_.clear();
}

bool ConvolutionPlan::attempt(const DnnDescriptor& pack) {
  check(target_.handle, "conv2d: a plan for a described GPU cannot run; use the plan of a cuDNN handle");
  const cudnnStatus_t status = cudnnBackendExecute(target_.handle, selected_.plan.get(), pack.get());
  if (status == CUDNN_STATUS_SUCCESS) return true;
  if (ran_) cuda_check(status, detail::concat("cudnnBackendExecute of ", description_).c_str());
  last_error_ = detail::concat("; the last engine reported ", dnn_error("cudnnBackendExecute", status));
  cudaGetLastError();  // clears the error, so that later calls do not report it
  ++failed_;
  advance();
  return false;
}

}  // namespace godwit
