#include "cudnn.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "races.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace {

using Name = cudnnBackendAttributeName_t;
using Kind = cudnnBackendDescriptorType_t;

using emulated_dnn::Engine;
using enum emulated_dnn::Engine;

constexpr Engine kModeA[] = {kNondeterministic, kDownConverting, kUnbuildable, kTensorCore};
constexpr Engine kFallback[] = {kLarge, kPlain, kSplit2, kSplit3, kLast};

struct Descriptor {
  Kind kind;
  bool finalized = false;
  std::map<Name, std::vector<int64_t>> values{};  // integers, enumerators and pointers
  std::map<Name, std::vector<std::shared_ptr<const Descriptor>>> parts{};
  Engine engine = kPlain;  // for descriptors of engines, engine configurations and their settings

  const Descriptor& part(Name name) const { return *parts.at(name).front(); }
  int64_t value(Name name, size_t i = 0) const { return values.at(name)[i]; }
};

thread_local std::string last_error;

cudnnStatus_t refuse(cudnnStatus_t status, std::string why) {
  last_error = std::move(why);
  return status;
}

bool refused_by_test(const char* call, int what) {
  return emulated_dnn::not_supported && emulated_dnn::not_supported(call, what);
}

// An attribute that must be set before a descriptor is finalized, unless it is optional; `part` is the kind of a nested
// descriptor.
struct Rule {
  Name name;
  cudnnBackendAttributeType_t type;
  size_t least = 1, most = 1;
  Kind part = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  bool optional = false;
};

bool is_convolution(Kind kind) {
  return kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
         kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
         kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
}

// Attributes of all operations are numbered in one order: alpha, beta, convolution, w, x, y.
Name attribute(Kind kind, int i) {
  const int first = kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
                        ? CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA
                    : kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
                        ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA
                        : CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA;
  return static_cast<Name>(first + i);
}

std::vector<Rule> rules(Kind kind) {
  constexpr auto kPart = CUDNN_TYPE_BACKEND_DESCRIPTOR;
  switch (kind) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return {{CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE},
              {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 1, 8},
              {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 1, 8},
              {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, 1, {}, true}};
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
      return {{CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE},
              {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE}};
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kPart, 1, 1, CUDNN_BACKEND_POINTWISE_DESCRIPTOR},
              {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, kPart},
              {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, kPart}};
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return {{CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE},
              {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE},
              {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64},
              {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 1, 8},
              {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 1, 8},
              {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 1, 8},
              {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 1, 8}};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return {{attribute(kind, 0), CUDNN_TYPE_FLOAT},
              {attribute(kind, 1), CUDNN_TYPE_FLOAT},
              {attribute(kind, 2), kPart, 1, 1, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR},
              {attribute(kind, 3), kPart},
              {attribute(kind, 4), kPart},
              {attribute(kind, 5), kPart}};
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return {{CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE}, {CUDNN_ATTR_OPERATIONGRAPH_OPS, kPart, 1, 2}};
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return {{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kPart, 1, 1, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR},
              {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE}};
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return {{CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE},
              {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, kPart, 1, 1, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR}};
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 1, 64},
              {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, 64},
              {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR}};
    default:
      return {};  // only heuristics create engines and engine configurations
  }
}

size_t bytes_of(cudnnBackendAttributeType_t type) {
  if (type == CUDNN_TYPE_BOOLEAN) return sizeof(bool);
  return type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_VOID_PTR || type == CUDNN_TYPE_HANDLE ? 8 : 4;
}
size_t bytes_of(cudnnDataType_t type) { return type == CUDNN_DATA_FLOAT ? 4 : 2; }

// Extents n, c, h, w and their strides.
struct Extents {
  explicit Extents(const Descriptor& tensor)
      : type(static_cast<cudnnDataType_t>(tensor.value(CUDNN_ATTR_TENSOR_DATA_TYPE))),
        uid(tensor.value(CUDNN_ATTR_TENSOR_UNIQUE_ID)),
        alignment(tensor.value(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)),
        is_virtual(tensor.values.contains(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && tensor.value(CUDNN_ATTR_TENSOR_IS_VIRTUAL)),
        dims(tensor.values.at(CUDNN_ATTR_TENSOR_DIMENSIONS)),
        strides(tensor.values.at(CUDNN_ATTR_TENSOR_STRIDES)) {}
  cudnnDataType_t type;
  int64_t uid, alignment;
  bool is_virtual;
  std::vector<int64_t> dims, strides;

  int64_t n() const { return dims[0]; }
  int64_t c() const { return dims[1]; }
  int64_t h() const { return dims[2]; }
  int64_t w() const { return dims[3]; }
  int64_t at(int64_t in, int64_t ic, int64_t ih, int64_t iw) const {
    return in * strides[0] + ic * strides[1] + ih * strides[2] + iw * strides[3];
  }
  size_t elements() const { return static_cast<size_t>(at(n() - 1, c() - 1, h() - 1, w() - 1)) + 1; }
};

struct Operation {
  explicit Operation(const Descriptor& d)
      : kind(d.kind),
        w(d.part(attribute(kind, 3))),
        x(d.part(attribute(kind, 4))),
        y(d.part(attribute(kind, 5))),
        strides(d.part(attribute(kind, 2)).values.at(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)),
        before(d.part(attribute(kind, 2)).values.at(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)),
        after(d.part(attribute(kind, 2)).values.at(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)),
        dilations(d.part(attribute(kind, 2)).values.at(CUDNN_ATTR_CONVOLUTION_DILATIONS)) {}
  Kind kind;
  Extents w, x, y;
  std::vector<int64_t> strides, before, after, dilations;
  bool copied = false;  // a virtual filter gradient is copied to `w`

  int64_t groups() const { return x.c() / w.c(); }
  const Extents& result() const {
    return kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? y
           : kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? x
                                                                                  : w;
  }
};

// The convolution of a graph, which may have a second operation: the copy of a virtual filter gradient.
Operation operation_of(const Descriptor& graph) {
  const auto& parts = graph.parts.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  Operation op(*parts[0]);
  op.copied = parts.size() > 1;
  if (op.copied) op.w = Extents(parts[1]->part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  return op;
}

cudnnStatus_t finalize_graph(const Descriptor& d) {
  const auto& parts = d.parts.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (!is_convolution(parts[0]->kind))
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "the first operation is not a convolution");
  const Operation op(*parts[0]);
  if (op.x.is_virtual || op.y.is_virtual || op.w.is_virtual != (parts.size() > 1))
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "only a result for another operation is virtual");
  if (parts.size() == 1) return CUDNN_STATUS_SUCCESS;
  if (parts[1]->kind != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ||
      op.kind != CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "not a filter gradient and its copy");
  const Extents from(parts[1]->part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
  const Extents to(parts[1]->part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  if (from.uid != op.w.uid || to.uid == from.uid || to.is_virtual)
    return refuse(CUDNN_STATUS_BAD_PARAM, "the copy is of another tensor");
  if (to.dims != from.dims || to.strides != from.strides || to.type != from.type || to.type != CUDNN_DATA_FLOAT)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a copy to another type or layout");
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_tensor(const Descriptor& d) {
  const Extents e(d);
  if (e.dims.size() != e.strides.size()) return refuse(CUDNN_STATUS_BAD_PARAM, "extents and strides differ in number");
  for (size_t i = 0; i < e.dims.size(); ++i)
    if (e.dims[i] <= 0 || e.strides[i] <= 0)
      return refuse(CUDNN_STATUS_BAD_PARAM, "an extent or stride is not positive");
  if (e.alignment <= 0 || e.alignment % static_cast<int64_t>(bytes_of(e.type)) != 0)
    return refuse(CUDNN_STATUS_BAD_PARAM, "the alignment is not a multiple of the element size");
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_convolution(const Descriptor& d) {
  const auto dims = static_cast<size_t>(d.value(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS));
  for (const auto& [name, least] : {std::pair{CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1},
                                    {CUDNN_ATTR_CONVOLUTION_DILATIONS, 1},
                                    {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0},
                                    {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0}}) {
    const auto& values = d.values.at(name);
    if (values.size() != dims || *std::min_element(values.begin(), values.end()) < least)
      return refuse(CUDNN_STATUS_BAD_PARAM, "strides, dilations or paddings do not fit");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_operation(const Descriptor& d) {
  const Operation op(d);
  for (const Extents* e : {&op.w, &op.x, &op.y})
    if (e->dims.size() != 2 + op.strides.size())
      return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor has another number of extents");
  if (op.x.c() % op.w.c() != 0 || op.w.n() % op.groups() != 0 || op.x.n() != op.y.n() || op.y.c() != op.w.n())
    return refuse(CUDNN_STATUS_BAD_PARAM, "channels or images do not fit");
  for (size_t i = 0; i < 2; ++i) {
    const int64_t seen = op.x.dims[2 + i] + op.before[i] + op.after[i] - op.dilations[i] * (op.w.dims[2 + i] - 1) - 1;
    if (seen < 0 || seen / op.strides[i] + 1 != op.y.dims[2 + i])
      return refuse(CUDNN_STATUS_BAD_PARAM, "the result's extents do not follow from the others'");
  }
  return CUDNN_STATUS_SUCCESS;
}

// As in cuDNN 9.19, there is no engine for factors of two types, nor for float32 filter gradients of bfloat16 images in
// one operation. With a copy as the second operation there is an engine, unless a number of channels is odd. Odd means
// not a multiple of 8. More graphs have no engine, so that tests cover each fallback: dilated groups, and bfloat16 with
// an odd number of output channels.
cudnnStatus_t finalize_heuristics(const Descriptor& d) {
  const Operation op = operation_of(d.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
  if (op.groups() > 1 && op.dilations[0] > 1) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "dilated groups");
  const bool half = op.x.type == CUDNN_DATA_BFLOAT16, half_w = op.w.type == CUDNN_DATA_BFLOAT16;
  if (op.y.type != op.x.type) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "factors of two types");
  if (half != half_w && !op.copied) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "filters of another type");
  if (half && op.y.c() % 8 != 0) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "odd output channels");
  if (op.copied && op.w.c() % 8 != 0) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "odd channels of a copied gradient");
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_plan(const Descriptor& d) {
  if (d.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine == kUnbuildable)
    return refuse(CUDNN_STATUS_NOT_SUPPORTED, "this engine cannot be built");
  return CUDNN_STATUS_SUCCESS;
}

int64_t workspace_of(Engine engine) {
  const auto set = emulated_dnn::workspaces.find(engine);
  if (set != emulated_dnn::workspaces.end()) return set->second;
  return engine == kLarge ? int64_t{1} << 40 : engine == kPlain ? 0 : 1000;
}

bool has_knob(Engine engine) { return engine == kSplit2 || engine == kSplit3; }
int64_t index_of(Engine engine) { return engine == kSplit3 ? kSplit2 : engine; }

std::vector<int64_t> notes_of(Engine engine) {
  switch (engine) {
    case kNondeterministic:
      return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
    case kDownConverting:
      return {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS};
    case kTensorCore:
      return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
    case kUnbuildable:
    case kLarge:
      return {};
    case kPlain:
    case kSplit2:
    case kSplit3:
    case kLast:
      return {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP};
  }
  return {};
}

double load(cudnnDataType_t type, const void* data, int64_t i) {
  emulated::note_read(static_cast<const std::byte*>(data) + i * static_cast<int64_t>(bytes_of(type)), bytes_of(type));
  if (type == CUDNN_DATA_FLOAT) return static_cast<double>(static_cast<const float*>(data)[i]);
  return static_cast<double>(std::bit_cast<float>(uint32_t{static_cast<const uint16_t*>(data)[i]} << 16));
}

void store(cudnnDataType_t type, void* data, int64_t i, double value) {
  emulated::note_write(static_cast<std::byte*>(data) + i * static_cast<int64_t>(bytes_of(type)), bytes_of(type));
  const auto narrow = static_cast<float>(value);
  if (type == CUDNN_DATA_FLOAT) {
    static_cast<float*>(data)[i] = narrow;
  } else {
    const auto u = std::bit_cast<uint32_t>(narrow);
    static_cast<uint16_t*>(data)[i] =
        std::isnan(narrow) ? uint16_t{0x7FC0} : static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
  }
}

// Rounds to TF32 as tensor cores do: 11 significant bits.
double tf32(double value) {
  const auto u = std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<double>(std::bit_cast<float>((u + 0xFFFu + ((u >> 13) & 1u)) & ~0x1FFFu));
}

std::vector<double> factors(Engine engine, const Extents& e, const void* data) {
  std::vector<double> values(e.elements());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = load(e.type, data, static_cast<int64_t>(i));
    if (engine == kTensorCore && e.type == CUDNN_DATA_FLOAT) values[i] = tf32(values[i]);
  }
  return values;
}

// Visits every product once; `use(x, w, y)` receives the indices of the factors and of the sum.
template <class F>
void each_product(const Operation& op, F use) {
  const int64_t in = op.w.c(), out = op.w.n() / op.groups();
  const auto x_step = op.x.at(0, 1, 0, 0), w_step = op.w.at(0, 1, 0, 0);
  for (int64_t n = 0; n < op.y.n(); ++n)
    for (int64_t k = 0; k < op.y.c(); ++k)
      for (int64_t r = 0; r < op.y.h(); ++r)
        for (int64_t o = 0; o < op.y.w(); ++o)
          for (int64_t i = 0; i < op.w.h(); ++i)
            for (int64_t j = 0; j < op.w.w(); ++j) {
              const int64_t row = r * op.strides[0] + i * op.dilations[0] - op.before[0];
              const int64_t column = o * op.strides[1] + j * op.dilations[1] - op.before[1];
              if (row < 0 || row >= op.x.h() || column < 0 || column >= op.x.w()) continue;
              const auto x = op.x.at(n, k / out * in, row, column), w = op.w.at(k, 0, i, j), y = op.y.at(n, k, r, o);
              for (int64_t c = 0; c < in; ++c) use(x + c * x_step, w + c * w_step, y);
            }
}

void run(const Operation& op, Engine engine, void* x, void* w, void* y) {
  const Extents& result = op.result();
  if (op.x.type == CUDNN_DATA_FLOAT) ++(engine == kTensorCore ? emulated_dnn::in_tf32 : emulated_dnn::in_float32);
  std::vector<double> sums(result.elements());
  const bool to_y = &result == &op.y, to_x = &result == &op.x;
  const auto of_x = to_x ? sums : factors(engine, op.x, x), of_y = to_y ? sums : factors(engine, op.y, y);
  const auto of_w = !to_x && !to_y ? sums : factors(engine, op.w, w);
  if (to_y) each_product(op, [&](auto a, auto b, auto to) { sums[to] += of_x[a] * of_w[b]; });
  else if (to_x) each_product(op, [&](auto to, auto b, auto a) { sums[to] += of_y[a] * of_w[b]; });
  else each_product(op, [&](auto a, auto to, auto b) { sums[to] += of_x[a] * of_y[b]; });
  const bool wrong = engine == kNondeterministic || engine == kDownConverting;
  for (size_t i = 0; i < sums.size(); ++i)
    store(result.type,
          to_y   ? y
          : to_x ? x
                 : w,
          static_cast<int64_t>(i), wrong ? std::numeric_limits<double>::quiet_NaN() : sums[i]);
}

Descriptor* raw(cudnnBackendDescriptor_t descriptor) { return static_cast<Descriptor*>(descriptor); }

}  // namespace

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_BAD_PARAM_NULL_POINTER:
      return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
    case CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER:
      return "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER";
    case CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED:
      return "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED";
    case CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE:
      return "CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE";
    case CUDNN_STATUS_NOT_SUPPORTED:
      return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED:
      return "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED";
  }
  return "unknown";
}

void cudnnGetLastErrorString(char* message, size_t size) {
  const size_t length = std::min(size - 1, last_error.size());
  std::memcpy(message, last_error.data(), length);
  message[length] = 0;
}

size_t cudnnGetVersion() { return emulated_dnn::version; }
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (emulated::used_bytes() + (1 << 20) > emulated::total_bytes)
    return refuse(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, "not enough memory for the handle");
  return *handle = new cudnnContext, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return delete handle, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return handle->stream = stream, CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  return *descriptor = new Descriptor{type}, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return delete raw(descriptor), CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* given) {
  Descriptor& d = *raw(descriptor);
  if (d.finalized) return refuse(CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized already");
  const auto all = rules(d.kind);
  const auto rule = std::find_if(all.begin(), all.end(), [=](const Rule& r) { return r.name == name; });
  if (rule == all.end()) return refuse(CUDNN_STATUS_BAD_PARAM, "no such attribute");
  if (rule->type != type) return refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "the attribute has another type");
  if (!given) return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no elements");
  if (count < static_cast<int64_t>(rule->least) || count > static_cast<int64_t>(rule->most))
    return refuse(CUDNN_STATUS_BAD_PARAM, "the attribute takes another number of elements");
  for (int64_t i = 0; i < count; ++i) {
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      const Descriptor& part = *raw(static_cast<const cudnnBackendDescriptor_t*>(given)[i]);
      const bool operation = is_convolution(part.kind) || part.kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
      const bool fits = name == CUDNN_ATTR_OPERATIONGRAPH_OPS ? operation : part.kind == rule->part;
      if (!fits) return refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor of another kind");
      if (!part.finalized) return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the descriptor is not finalized");
      if (i == 0) d.parts[name].clear();
      d.parts[name].push_back(std::make_shared<Descriptor>(part));
    } else {
      if (i == 0) d.values[name].assign(static_cast<size_t>(count), 0);
      const size_t bytes = bytes_of(type);
      std::memcpy(&d.values[name][static_cast<size_t>(i)],
                  static_cast<const std::byte*>(given) + static_cast<size_t>(i) * bytes, bytes);
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  Descriptor& d = *raw(descriptor);
  if (refused_by_test("Finalize", d.kind)) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a test's finalize");
  const auto all = rules(d.kind);
  if (all.empty()) return refuse(CUDNN_STATUS_BAD_PARAM, "only heuristics create this descriptor");
  for (const Rule& rule : all)
    if (!rule.optional && !d.values.contains(rule.name) && !d.parts.contains(rule.name))
      return refuse(CUDNN_STATUS_BAD_PARAM, "attribute " + std::to_string(rule.name) + " is not set");
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  if (d.kind == CUDNN_BACKEND_TENSOR_DESCRIPTOR) status = finalize_tensor(d);
  if (d.kind == CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR) status = finalize_convolution(d);
  if (is_convolution(d.kind)) status = finalize_operation(d);
  if (d.kind == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) status = finalize_graph(d);
  if (d.kind == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) status = finalize_heuristics(d);
  if (d.kind == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) status = finalize_plan(d);
  d.finalized = status == CUDNN_STATUS_SUCCESS;
  return status;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                                       void* values) {
  const Descriptor& d = *raw(descriptor);
  if (refused_by_test("GetAttribute", name)) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a test's attribute");
  if (!d.finalized) return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the descriptor is not finalized");
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    std::vector<Engine> engines(std::begin(kModeA), std::end(kModeA));
    if (d.value(CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_FALLBACK)
      engines.assign(std::begin(kFallback), std::end(kFallback));
    *count = static_cast<int64_t>(engines.size());
    for (int64_t i = 0; i < std::min(requested, *count); ++i) {
      Descriptor& config = *raw(static_cast<cudnnBackendDescriptor_t*>(values)[i]);
      if (config.kind != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR || config.finalized)
        return refuse(CUDNN_STATUS_BAD_PARAM, "results need new configurations");
      config.parts[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH] = d.parts.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
      config.engine = engines[static_cast<size_t>(i)];
      config.finalized = true;
    }
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE && type == CUDNN_TYPE_BACKEND_DESCRIPTOR && requested == 1) {
    Descriptor& engine = *raw(*static_cast<cudnnBackendDescriptor_t*>(values));
    if (d.kind != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR || engine.kind != CUDNN_BACKEND_ENGINE_DESCRIPTOR)
      return refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor of another kind");
    engine.engine = d.engine;
    engine.finalized = true;
    return *count = 1, CUDNN_STATUS_SUCCESS;
  }
  if (d.kind == CUDNN_BACKEND_ENGINE_DESCRIPTOR && name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX) {
    *static_cast<int64_t*>(values) = index_of(d.engine);
    return *count = 1, CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES && type == CUDNN_TYPE_BACKEND_DESCRIPTOR &&
      d.kind == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
    *count = requested > 0 && has_knob(d.engine) ? 1 : 0;  // like cuDNN 9.19, 0 if none is requested
    if (*count == 0) return CUDNN_STATUS_SUCCESS;
    Descriptor& knob = *raw(*static_cast<cudnnBackendDescriptor_t*>(values));
    if (knob.kind != CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)
      return refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor of another kind");
    knob.engine = d.engine;
    knob.finalized = true;
    return CUDNN_STATUS_SUCCESS;
  }
  if (d.kind == CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR && requested == 1) {
    if (name == CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE && type == CUDNN_TYPE_KNOB_TYPE) {
      *static_cast<cudnnBackendKnobType_t*>(values) = CUDNN_KNOB_TYPE_SPLIT_K;
      return *count = 1, CUDNN_STATUS_SUCCESS;
    }
    if (name == CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE && type == CUDNN_TYPE_INT64) {
      *static_cast<int64_t*>(values) = d.engine == kSplit2 ? 2 : 3;
      return *count = 1, CUDNN_STATUS_SUCCESS;
    }
  }
  if (d.kind == CUDNN_BACKEND_ENGINE_DESCRIPTOR && name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE)
    return *count = 0, CUDNN_STATUS_SUCCESS;
  if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE &&
      d.kind == CUDNN_BACKEND_ENGINE_DESCRIPTOR) {
    const auto notes = notes_of(d.engine);
    *count = static_cast<int64_t>(notes.size());
    for (int64_t i = 0; i < std::min(requested, *count); ++i)
      static_cast<cudnnBackendNumericalNote_t*>(values)[i] =
          static_cast<cudnnBackendNumericalNote_t>(notes[static_cast<size_t>(i)]);
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64 && requested == 1 &&
      d.kind == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    *static_cast<int64_t*>(values) = workspace_of(d.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine);
    return *count = 1, CUDNN_STATUS_SUCCESS;
  }
  return refuse(CUDNN_STATUS_BAD_PARAM, "no such attribute to read");
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  const Descriptor &p = *raw(plan), &with = *raw(pack);
  if (!p.finalized || !with.finalized || p.kind != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
      with.kind != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    return refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a plan and a pack are needed");
  if (p.value(CUDNN_ATTR_EXECUTION_PLAN_HANDLE) != reinterpret_cast<int64_t>(handle))
    return refuse(CUDNN_STATUS_BAD_PARAM, "the plan is of another handle");
  const Descriptor& config = p.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  if (refused_by_test("Execute", config.engine)) return refuse(CUDNN_STATUS_NOT_SUPPORTED, "a test's execution");
  const auto bytes = static_cast<size_t>(workspace_of(config.engine));
  auto* room = reinterpret_cast<std::byte*>(with.value(CUDNN_ATTR_VARIANT_PACK_WORKSPACE));
  if (bytes > 0 && !emulated::in_device_memory(room, bytes))
    return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the workspace is not in device memory");
  const Operation op = operation_of(config.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
  const auto& uids = with.values.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto& pointers = with.values.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (uids.size() != pointers.size()) return refuse(CUDNN_STATUS_BAD_PARAM, "names and pointers differ in number");
  void* memory[3];
  int i = 0;
  for (const Extents* e : {&op.x, &op.w, &op.y}) {
    const auto found = std::find(uids.begin(), uids.end(), e->uid);
    if (found == uids.end()) return refuse(CUDNN_STATUS_BAD_PARAM, "a tensor has no memory");
    const int64_t pointer = pointers[static_cast<size_t>(found - uids.begin())];
    if (pointer % e->alignment != 0)
      return refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "not aligned as declared");
    memory[i] = reinterpret_cast<void*>(pointer);
    if (!emulated::in_device_memory(memory[i++], e->elements() * bytes_of(e->type)))
      return refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a tensor is not in the device's memory");
  }
  ++emulated::counts.launches;
  const emulated::Label label{"a convolution of cuDNN"};
  const double time = emulated_dnn::milliseconds ? emulated_dnn::milliseconds(config.engine) : 1;
  emulated::give(handle->stream, label, [=, engine = config.engine, x = memory[0], w = memory[1], y = memory[2]] {
    emulated::spend(handle->stream, time);
    emulated::note_write(room, bytes);
    std::fill_n(room, bytes, std::byte{0xFF});
    run(op, engine, x, w, y);
    return cudaSuccess;
  });
  return CUDNN_STATUS_SUCCESS;
}
