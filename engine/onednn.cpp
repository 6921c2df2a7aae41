#include "engine/onednn.h"

#include <oneapi/dnnl/dnnl_version.h>
#ifndef _OPENMP
#include <dlfcn.h>
#endif

#include "engine/kernel_library.h"
#include "engine/packed_weights.h"
#include "engine/subnormals.h"
#include "engine/vector_loop.h"

namespace godwit::onednn {
namespace {

dnnl::engine make_engine() {
  (void)context();
#ifndef _OPENMP
  // Without OpenMP, a rank has one thread. The library may use its own OpenMP, so limit its threads at run time.
  if (void* set_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads")) reinterpret_cast<void (*)(int)>(set_threads)(1);
#endif
  return dnnl::engine(dnnl::engine::kind::cpu, 0);
}

dnnl::memory::data_type type_of(DType dtype) {
  check(dtype == DType::f32 || dtype == DType::bf16, "oneDNN: takes float32 or bfloat16, not ", dtype);
  return dtype == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

}  // namespace

const dnnl::engine& engine() {
  thread_local const dnnl::engine engine = make_engine();
  return engine;
}

const dnnl::stream& stream() {
  thread_local const dnnl::stream stream(engine());
  return stream;
}

Desc activations(const Shape& s, DType dtype) {
  check(s.rank() == 4, "oneDNN: activations are [n, h, w, c], not ", s);
  return Desc({s[0], s[3], s[1], s[2]}, type_of(dtype), dnnl::memory::format_tag::nhwc);
}

Desc filters(const Shape& s, int64_t groups, DType dtype) {
  check(s.rank() == 4 && s[0] % groups == 0, "oneDNN: filters are [o, kh, kw, i], not ", s, " in ", groups, " groups");
  if (groups == 1) return Desc({s[0], s[3], s[1], s[2]}, type_of(dtype), dnnl::memory::format_tag::ohwi);
  return Desc({groups, s[0] / groups, s[3], s[1], s[2]}, type_of(dtype), dnnl::memory::format_tag::gohwi);
}

Desc matrix(int64_t rows, int64_t columns, DType dtype) {
  return Desc({rows, columns}, type_of(dtype), dnnl::memory::format_tag::ab);
}

Desc transposed(const Desc& matrix) { return matrix.permute_axes({1, 0}); }

Desc vector(int64_t n, DType dtype) { return Desc({n}, type_of(dtype), dnnl::memory::format_tag::a); }

Desc any_layout(const Desc& desc) {
#if DNNL_VERSION_MAJOR < 3
  return Desc(desc.dims(), desc.data_type(), dnnl::memory::format_tag::any);
#else
  return Desc(desc.get_dims(), desc.get_data_type(), dnnl::memory::format_tag::any);
#endif
}

Dims dims_of(const Desc& desc) {
#if DNNL_VERSION_MAJOR < 3
  return desc.dims();
#else
  return desc.get_dims();
#endif
}

std::optional<BlockedLayout> layout_of(const Desc& desc) {
  BlockedLayout layout;
#if DNNL_VERSION_MAJOR < 3
  const auto& d = desc.data;
  if (d.format_kind != dnnl_blocked || d.extra.flags != 0) return {};
  const auto& b = d.format_desc.blocking;
  layout.padded.assign(d.padded_dims, d.padded_dims + d.ndims);
  layout.strides.assign(b.strides, b.strides + d.ndims);
  for (int i = 0; i < b.inner_nblks; ++i) layout.inner.emplace_back(static_cast<int>(b.inner_idxs[i]), b.inner_blks[i]);
#else
  if (desc.get_format_kind() != dnnl::memory::format_kind::blocked) return {};
  layout.padded = desc.get_padded_dims();
  layout.strides = desc.get_strides();
  const auto sizes = desc.get_inner_blks(), dims = desc.get_inner_idxs();
  for (size_t i = 0; i < sizes.size(); ++i) layout.inner.emplace_back(static_cast<int>(dims[i]), sizes[i]);
#endif
  return layout;
}

bool avx512_bf16() {
  return dnnl_get_effective_cpu_isa() == dnnl_cpu_isa_avx512_core_bf16 && detail::fast_avx512_bf16();
}

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

void refuse(const dnnl::error& error, const char* what) {
  if (error.status == dnnl_unimplemented)
    throw NoKernel(detail::concat(what, ": oneDNN has no kernel on this processor"), __FILE__, __LINE__);
  fail(what, ": oneDNN reports: ", error.what(), " (status ", static_cast<int>(error.status), ")");
}

Plan<dnnl::reorder> plan_reorder(const Desc& from, const Desc& to) try {
  return Plan<dnnl::reorder>({engine(), from, engine(), to, attributes()});
} catch (const dnnl::error& error) {
  refuse(error, "reorder");
}

Blocks blocks_of(const Desc& plain, const Desc& wanted) {
  using Tag = dnnl::memory::format_tag;
  const Dims extents = dims_of(wanted);
  if (extents.size() != 2) return Blocks::none;
  for (const DType type : {DType::f32, DType::bf16}) {
    if (wanted != Desc(extents, type_of(type), type == DType::f32 ? Tag::BA16a64b : Tag::BA16a64b2a)) continue;
    if (plain == matrix(extents[0], extents[1])) return Blocks::of_rows;
    if (plain == transposed(matrix(extents[1], extents[0]))) return Blocks::of_columns;
  }
  return Blocks::none;
}

void arrange(const std::vector<Tensor>& w, Blocks blocks, const Desc& wanted, const Tensor& to) {
  const Dims extents = dims_of(wanted);
#if DNNL_VERSION_MAJOR < 3
  const bool halves = wanted.data_type() == dnnl::memory::data_type::bf16;
#else
  const bool halves = wanted.get_data_type() == dnnl::memory::data_type::bf16;
#endif
  pack_weights(Cpu{}, w, blocks == Blocks::of_columns, extents[0], extents[1], halves ? DType::bf16 : DType::f32,
               to.raw());
}

size_t KeyHash::operator()(const Key& key) const {
  uint64_t hash = 0;
  for (int64_t part : key) {
    hash = (hash ^ static_cast<uint64_t>(part)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return hash;
}

void run(const dnnl::primitive& primitive, const Desc& scratchpad,
         std::unordered_map<int, dnnl::memory> arguments) try {
  Tensor scratch;
  if (const auto bytes = static_cast<int64_t>(scratchpad.get_size())) {
    scratch = Tensor({bytes}, DType::u8);
    arguments.emplace(DNNL_ARG_SCRATCHPAD, memory(scratchpad, scratch));
  }
  const FlushSubnormals flush;  // this thread only: setting the library's threads takes longer than small products
  dnnl::stream here = stream();
  primitive.execute(here, arguments);
  here.wait();
} catch (const dnnl::error& error) {
  refuse(error, "execute");
}

}  // namespace godwit::onednn

namespace godwit {
namespace {

std::string instruction_set() {
  switch (const auto isa = dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41:
      return "sse41";
    case dnnl_cpu_isa_avx:
      return "avx";
    case dnnl_cpu_isa_avx2:
      return "avx2";
    case dnnl_cpu_isa_avx2_vnni:
      return "avx2_vnni";
    case dnnl_cpu_isa_avx512_core:
      return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx:
      return "avx512_core_amx";
    default:
      return "instruction set " + std::to_string(static_cast<int>(isa));
  }
}

}  // namespace

std::string kernel_library() {
  const dnnl_version_t& v = *dnnl_version();
  return detail::concat("oneDNN ", v.major, ".", v.minor, ".", v.patch, ", ", instruction_set());
}

bool fast_bf16() {
  constexpr int kAmx = dnnl_cpu_isa_avx512_core_amx;  // wider instruction sets include these bits
  return (static_cast<int>(dnnl_get_effective_cpu_isa()) & kAmx) == kAmx || onednn::avx512_bf16();
}

}  // namespace godwit
