#include "engine/cuda/dnn.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda/cuda_context.h"

namespace godwit {
namespace {

constexpr int64_t kConvolution = 2;             // first of the keys of this file in the context's cache
constexpr int64_t kAlignment = 16;              // bytes
constexpr int64_t kMostWorkspace = 1ll << 30;   // of a GPU's memory, while an operation runs
enum Uid : int64_t { kX = 1, kW = 2, kY = 3 };  // names of a graph's tensors

// A descriptor of cuDNN's, owned. Attributes are copied into it; of a descriptor, what it says.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    cuda_check(cudnnBackendCreateDescriptor(type, &handle_), "cudnnBackendCreateDescriptor");
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

  // At most as many as `to` holds are written to it; how many there are.
  template <class T>
  int64_t read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t room, T* to) const {
    int64_t count = 0;
    cuda_check(cudnnBackendGetAttribute(handle_, name, type, room, &count, to), "cudnnBackendGetAttribute");
    return count;
  }

  // Where cuDNN cannot do what it is asked for, that is its answer.
  cudnnStatus_t try_finalize() { return cudnnBackendFinalize(handle_); }
  void finalize() { cuda_check(try_finalize(), "cudnnBackendFinalize"); }

 private:
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* values) {
    cuda_check(cudnnBackendSetAttribute(handle_, name, type, count, values), "cudnnBackendSetAttribute");
  }

  cudnnBackendDescriptor_t handle_ = nullptr;
};

struct Plan {
  Descriptor config, plan;
  int64_t workspace = 0;
  std::string lacks;  // why there is none
};

// What one kind of operation is called, and calls its attributes.
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
      {"backward to its data", CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
      {"backward to its filters", CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};
  return names[static_cast<int>(what)];
}

std::string describe(Convolution what, const ConvolutionOptions& options, const Tensor& x, const Tensor& w,
                     const Tensor& y) {
  return detail::concat("conv2d ", names_of(what).text, ", x ", x.dtype(), " ", x.shape(), ", weight ", w.dtype(), " ",
                        w.shape(), ", y ", y.dtype(), " ", y.shape(), ", stride ", options.stride, ", padding ",
                        options.padding, ", dilation ", options.dilation);
}

cudnnDataType_t library_type(DType dtype) {
  check(dtype == DType::f32 || dtype == DType::bf16, "conv2d: cuDNN takes float32 or bfloat16 here, not ", dtype);
  return dtype == DType::f32 ? CUDNN_DATA_FLOAT : CUDNN_DATA_BFLOAT16;
}

// cuDNN names extents in the order n, c, h, w, wherever they lie in memory.
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

// What cuDNN says of an engine that we do not take: sums that change from run to run, numbers of fewer bits than
// asked for, and transforms, which lose some.
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

std::string last_error(const char* call, cudnnStatus_t status) {
  std::array<char, 512> text{};
  cudnnGetLastErrorString(text.data(), text.size());
  return detail::concat(call, ": ", cudnnGetErrorString(status), " (", text.data(), ")");
}

// The engines that cuDNN proposes for the graph, the fastest first as it thinks; where it has none, `why`.
std::vector<Descriptor> proposals(const Descriptor& graph, cudnnBackendHeurMode_t mode, std::string& why) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (const auto status = heuristics.try_finalize(); status != CUDNN_STATUS_SUCCESS) {
    why = last_error("; the heuristics said", status);
    return {};
  }
  const auto count = heuristics.read<cudnnBackendDescriptor_t>(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  std::vector<Descriptor> configs;
  std::vector<cudnnBackendDescriptor_t> into;
  for (int64_t i = 0; i < count; ++i) into.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
  const int64_t given =
      heuristics.read(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, into.data());
  configs.resize(static_cast<size_t>(std::min(given, count)));
  return configs;
}

Plan make_plan(Cuda device, Convolution what, const ConvolutionOptions& options, const Tensor& x, const Tensor& w,
               const Tensor& y) {
  const Names& names = names_of(what);
  const auto lacks = [](std::string why) {
    Plan none;
    none.lacks = std::move(why);
    return none;
  };
  Descriptor operation(names.operation);
  operation.set(names.alpha, CUDNN_TYPE_FLOAT, 1.f);
  operation.set(names.beta, CUDNN_TYPE_FLOAT, 0.f);
  operation.set(names.convolution, convolution_descriptor(options));
  operation.set(names.x, tensor_descriptor(kX, x));
  operation.set(names.w, tensor_descriptor(kW, w));
  operation.set(names.y, tensor_descriptor(kY, y));
  if (const auto status = operation.try_finalize(); status != CUDNN_STATUS_SUCCESS)
    return lacks(last_error("the operation", status));
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, device.context->dnn());
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  if (const auto status = graph.try_finalize(); status != CUDNN_STATUS_SUCCESS)
    return lacks(last_error("its graph", status));
  const bool tensor_cores = options.tf32 || y.dtype() == DType::bf16;
  size_t proposed = 0, passed_over = 0, too_large = 0;
  std::string why;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (Descriptor& config : proposals(graph, mode, why)) {
      ++proposed;
      if (refused(config, tensor_cores)) {
        ++passed_over;
        continue;
      }
      Plan plan;
      plan.plan = Descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, device.context->dnn());
      plan.plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
      if (const auto status = plan.plan.try_finalize(); status != CUDNN_STATUS_SUCCESS) {
        why = last_error("; the last engine said", status);
        continue;
      }
      plan.plan.read(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &plan.workspace);
      if (plan.workspace > kMostWorkspace) {
        ++too_large;
        continue;
      }
      plan.config = std::move(config);
      return plan;
    }
  return lacks(detail::concat("of ", proposed, " engines ", passed_over, " are not deterministic in float32, ",
                              too_large, " want more than ", kMostWorkspace, " bytes", why));
}

void* memory_of(const Tensor& t) {
  void* memory = t.dtype() == DType::bf16 ? static_cast<void*>(t.cuda_data<bf16>()) : t.cuda_data<float>();
  check(reinterpret_cast<uintptr_t>(memory) % kAlignment == 0, "conv2d: memory for cuDNN must begin at ", kAlignment,
        " bytes, that of a tensor ", t.shape(), " begins at ", memory);
  return memory;
}

}  // namespace

std::string_view convolve(Cuda device, Convolution what, const ConvolutionOptions& options, const Tensor& x,
                          const Tensor& w, const Tensor& y) {
  std::vector<int64_t> key{kConvolution,    static_cast<int64_t>(what), options.stride,
                           options.padding, options.dilation,           options.tf32};
  for (const Tensor& t : {x, w, y}) {
    key.push_back(static_cast<int64_t>(t.dtype()));
    for (int i = 0; i < 4; ++i) key.push_back(t.dim(i));
  }
  const Plan& plan = device.context->cached<Plan>(key, [&] { return make_plan(device, what, options, x, w, y); });
  if (!plan.lacks.empty()) return plan.lacks;
  void *at_x = memory_of(x), *at_w = memory_of(w), *at_y = memory_of(y);
  const Tensor room = workspace(device, plan.workspace);
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {kX, kW, kY});
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, {at_x, at_w, at_y});
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {room.address()});
  pack.finalize();
  if (const auto status = cudnnBackendExecute(device.context->dnn(), plan.plan.get(), pack.get());
      status != CUDNN_STATUS_SUCCESS)
    cuda_check(status, detail::concat("cudnnBackendExecute of ", describe(what, options, x, w, y)).c_str());
  return {};
}

}  // namespace godwit
