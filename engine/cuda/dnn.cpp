#include "engine/cuda/dnn.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda/cuda_context.h"

namespace godwit {
namespace {

constexpr int64_t kConvolution = 2;             // first cache key of this file in the context
constexpr int64_t kAlignment = 16;              // bytes
constexpr int64_t kMostWorkspace = 1ll << 30;   // of GPU memory, while an operation runs
enum Uid : int64_t { kX = 1, kW = 2, kY = 3 };  // IDs of a graph's tensors

std::string last_error(const char* call, cudnnStatus_t status) {
  std::array<char, 512> text{};
  cudnnGetLastErrorString(text.data(), text.size());
  return detail::concat(call, ": ", cudnnGetErrorString(status), " (", text.data(), ")");
}

// Thrown if cuDNN reports that it does not support a configuration; not an error.
struct NotSupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void library_check(cudnnStatus_t status, const char* call) {
  constexpr int kCategory = 1000;  // each category has a thousand codes
  if (status / kCategory == CUDNN_STATUS_NOT_SUPPORTED / kCategory) throw NotSupported(last_error(call, status));
  cuda_check(status, call);
}

// An owned cuDNN descriptor. Setting an attribute copies the value, including the contents of other descriptors.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    library_check(cudnnBackendCreateDescriptor(type, &handle_), "cudnnBackendCreateDescriptor");
  }
  ~Descriptor() {
    if (handle_) cudnnBackendDestroyDescriptor(handle_);
  }
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  cudnnBackendDescriptor_t get() const { return handle_; }

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.handle_);
  }
  void set(cudnnBackendAttributeName_t name, std::initializer_list<int64_t> values) {
    set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.begin());
  }
  void set(cudnnBackendAttributeName_t name, std::initializer_list<void*> values) {
    set(name, CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(values.size()), values.begin());
  }

  // Writes at most `room` elements to `to`; returns the number available.
  template <class T>
  int64_t read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t room, T* to) const {
    int64_t count = 0;
    library_check(cudnnBackendGetAttribute(handle_, name, type, room, &count, to), "cudnnBackendGetAttribute");
    return count;
  }

  // Returns cuDNN's status; a failure may mean that the configuration is not supported.
  cudnnStatus_t try_finalize() { return cudnnBackendFinalize(handle_); }
  void finalize() { library_check(try_finalize(), "cudnnBackendFinalize"); }

 private:
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* values) {
    library_check(cudnnBackendSetAttribute(handle_, name, type, count, values), "cudnnBackendSetAttribute");
  }

  cudnnBackendDescriptor_t handle_ = nullptr;
};

// Name and cuDNN identifiers of one kind of operation.
struct Names {
  const char* text;
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t alpha, beta, convolution, x, w, y;
};

const Names& names_of(Convolution what) {
  static const Names names[] = {
      {"forward", CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
      {"backward data", CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
      {"backward filters", CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};
  return names[static_cast<int>(what)];
}

cudnnDataType_t library_type(DType dtype) {
  check(dtype == DType::f32 || dtype == DType::bf16, "conv2d: cuDNN takes float32 or bfloat16 here, not ", dtype);
  return dtype == DType::f32 ? CUDNN_DATA_FLOAT : CUDNN_DATA_BFLOAT16;
}

// cuDNN orders extents as n, c, h, w, independent of the memory layout.
Descriptor tensor_descriptor(Uid uid, const Tensor& t) {
  const int64_t n = t.dim(0), h = t.dim(1), w = t.dim(2), c = t.dim(3);
  Descriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, {uid});
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, library_type(t.dtype()));
  made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {kAlignment});
  made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, {n, c, h, w});
  made.set(CUDNN_ATTR_TENSOR_STRIDES, {h * w * c, 1, w * c, c});
  made.finalize();
  return made;
}

Descriptor convolution_descriptor(const ConvolutionOptions& options) {
  Descriptor made(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
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

// Whether to reject an engine because of its numerical notes: nondeterministic sums, reduced precision, or transforms
// that lose precision.
bool refused(const Descriptor& config, bool tensor_cores) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t into = engine.get();
  config.read(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &into);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const int64_t count = engine.read(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                    CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes.data());
  return std::any_of(notes.begin(), notes.begin() + std::min<int64_t>(count, CUDNN_NUMERICAL_NOTE_TYPE_COUNT),
                     [=](cudnnBackendNumericalNote_t note) {
                       switch (note) {
                         case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
                           return !tensor_cores;
                         case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP:
                           return false;
                         default:
                           return true;
                       }
                     });
}

// The engines that cuDNN proposes for the graph, fastest first by cuDNN's estimate. Sets `why` if there are none.
std::vector<Descriptor> proposals(const Descriptor& graph, cudnnBackendHeurMode_t mode, std::string& why) {
  std::vector<Descriptor> configs;
  try {
    Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    if (const auto status = heuristics.try_finalize(); status != CUDNN_STATUS_SUCCESS)
      throw NotSupported(last_error("cudnnBackendFinalize", status));
    const auto count = heuristics.read<cudnnBackendDescriptor_t>(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
    std::vector<cudnnBackendDescriptor_t> into;
    for (int64_t i = 0; i < count; ++i) into.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
    const int64_t given =
        heuristics.read(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, into.data());
    configs.resize(static_cast<size_t>(std::min(given, count)));
    return configs;
  } catch (const NotSupported& answer) {
    why = detail::concat("; cuDNN's heuristics reported ", answer.what());
    return {};
  }
}

// The engine for one operation: the first proposal that works, or the reason why there is none.
class Plan {
 public:
  Plan(Cuda device, Convolution what, const ConvolutionOptions& options, const Tensor& x, const Tensor& w,
       const Tensor& y)
      : tensor_cores_(options.tf32 || y.dtype() == DType::bf16) {
    try {
      graph_ = operation_graph(device, what, options, x, w, y);
      advance(device);
    } catch (const NotSupported& answer) {
      lacks_ = answer.what();
    }
  }

  const std::string& lacks() const { return lacks_; }  // reason why there is no engine; empty if there is one
  int64_t workspace() const { return workspace_; }

  // Runs the engine. If its first run fails, selects the next engine and returns false; call again, unless lacks().
  template <class F>
  bool execute(Cuda device, const Descriptor& pack, F&& description) {
    const cudnnStatus_t status = cudnnBackendExecute(device.context->dnn(), plan_.get(), pack.get());
    if (status == CUDNN_STATUS_SUCCESS) {
      ran_ = true;
      proposals_.clear();
      return true;
    }
    if (ran_) cuda_check(status, detail::concat("cudnnBackendExecute of ", description()).c_str());
    why_ = detail::concat("; the last engine reported ", last_error("cudnnBackendExecute", status));
    cudaGetLastError();  // clears the error, so that later calls do not report it
    ++failed_;
    advance(device);
    return false;
  }

 private:
  static Descriptor operation_graph(Cuda device, Convolution what, const ConvolutionOptions& options, const Tensor& x,
                                    const Tensor& w, const Tensor& y) {
    const Names& names = names_of(what);
    Descriptor operation(names.operation);
    operation.set(names.alpha, CUDNN_TYPE_FLOAT, 1.f);
    operation.set(names.beta, CUDNN_TYPE_FLOAT, 0.f);
    operation.set(names.convolution, convolution_descriptor(options));
    operation.set(names.x, tensor_descriptor(kX, x));
    operation.set(names.w, tensor_descriptor(kW, w));
    operation.set(names.y, tensor_descriptor(kY, y));
    if (const auto status = operation.try_finalize(); status != CUDNN_STATUS_SUCCESS)
      throw NotSupported(last_error("the operation", status));
    Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, device.context->dnn());
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    if (const auto status = graph.try_finalize(); status != CUDNN_STATUS_SUCCESS)
      throw NotSupported(last_error("its graph", status));
    return graph;
  }

  // Selects the next acceptable engine; sets lacks_ if there is none.
  void advance(Cuda device) {
    constexpr std::array kModes{CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    for (;; ++at_) {
      while (at_ == proposals_.size() && mode_ < kModes.size()) {
        proposals_ = proposals(graph_, kModes[mode_++], why_);
        at_ = 0;
      }
      if (at_ == proposals_.size()) break;
      ++proposed_;
      try {
        if (take(device, proposals_[at_])) return ++at_, void();
      } catch (const NotSupported& answer) {
        why_ = detail::concat("; the last engine reported ", answer.what());
      }
    }
    lacks_ = detail::concat("of ", proposed_, " engines ", passed_over_, " are not deterministic in float32, ",
                            too_large_, " need more than ", kMostWorkspace, " bytes, ", failed_, "failed to run", why_);
  }

  bool take(Cuda device, Descriptor& config) {
    if (refused(config, tensor_cores_)) return ++passed_over_, false;
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, device.context->dnn());
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (const auto status = plan.try_finalize(); status != CUDNN_STATUS_SUCCESS)
      throw NotSupported(last_error("cudnnBackendFinalize", status));
    int64_t bytes = 0;
    plan.read(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
    if (bytes > kMostWorkspace) return ++too_large_, false;
    plan_ = std::move(plan);
    config_ = std::move(config);
    workspace_ = bytes;
    return true;
  }

  bool tensor_cores_, ran_ = false;
  Descriptor graph_, config_, plan_;
  std::vector<Descriptor> proposals_;  // from the last heuristic mode
  size_t mode_ = 0, at_ = 0;           // indices of the next mode and proposal
  int64_t workspace_ = 0;
  size_t proposed_ = 0, passed_over_ = 0, too_large_ = 0, failed_ = 0;
  std::string why_, lacks_;
};

void* memory_of(const Tensor& t) {
  void* memory = t.dtype() == DType::bf16 ? static_cast<void*>(t.cuda_data<bf16>()) : t.cuda_data<float>();
  check(reinterpret_cast<uintptr_t>(memory) % kAlignment == 0, "conv2d: cuDNN needs memory aligned to ", kAlignment,
        " bytes; tensor ", t.shape(), " is at address ", memory);
  return memory;
}

}  // namespace

std::string describe(Convolution what, const ConvolutionOptions& options, const Tensor& x, const Tensor& w,
                     const Tensor& y) {
  return detail::concat("conv2d ", names_of(what).text, ", x ", x.dtype(), " ", x.shape(), ", weight ", w.dtype(), " ",
                        w.shape(), ", y ", y.dtype(), " ", y.shape(), ", stride ", options.stride, ", padding ",
                        options.padding, ", dilation ", options.dilation);
}

std::string_view convolve(Cuda device, Convolution what, const ConvolutionOptions& options, const Tensor& x,
                          const Tensor& w, const Tensor& y) {
  std::vector<int64_t> key{kConvolution,    static_cast<int64_t>(what), options.stride,
                           options.padding, options.dilation,           options.tf32};
  for (const Tensor& t : {x, w, y}) {
    key.push_back(static_cast<int64_t>(t.dtype()));
    for (int i = 0; i < 4; ++i) key.push_back(t.dim(i));
  }
  Plan& plan = device.context->cached<Plan>(key, [&] { return Plan(device, what, options, x, w, y); });
  if (!plan.lacks().empty()) return plan.lacks();
  void *at_x = memory_of(x), *at_w = memory_of(w), *at_y = memory_of(y);
  do {
    const Tensor room = workspace(device, plan.workspace());
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {kX, kW, kY});
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, {at_x, at_w, at_y});
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {room.address()});
    pack.finalize();
    if (plan.execute(device, pack, [&] { return describe(what, options, x, w, y); })) return {};
  } while (plan.lacks().empty());
  return plan.lacks();
}

}  // namespace godwit
