// Wrapper over oneDNN 2.6 and 3.x: engine, descriptors, cached primitives. Only *_onednn.cpp files include this header.
#pragma once
#include <array>
#include <concepts>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/context.h"
#include "engine/kernel_library.h"
#include "engine/tensor.h"

namespace godwit::onednn {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;

// The calling thread's engine and stream. The first use also limits oneDNN to context().threads threads.
const dnnl::engine& engine();
const dnnl::stream& stream();

// Descriptors of float32 or bfloat16 tensors in their storage layout. oneDNN orders extents as n, c, h, w and o, i, h,
// w.
Desc activations(const Shape& nhwc, DType dtype = DType::f32);                  // [n, h, w, c]
Desc filters(const Shape& ohwi, int64_t groups = 1, DType dtype = DType::f32);  // [o, kh, kw, i per group]
Desc matrix(int64_t rows, int64_t columns, DType dtype = DType::f32);           // [rows, columns]
Desc transposed(const Desc& matrix);                                            // transpose of a stored [rows, columns]
Desc vector(int64_t n, DType dtype = DType::f32);                               // [n]
Desc any_layout(const Desc& desc);  // the same extents and type; the primitive chooses the layout
Dims dims_of(const Desc& desc);
inline dnnl::memory memory(const Desc& desc, const Tensor& data) { return {desc, engine(), data.raw()}; }

// A primitive P, such as dnnl::convolution_forward, with its descriptor.
template <class P>
struct Plan {
  typename P::primitive_desc desc;
  P primitive;
  explicit Plan(typename P::primitive_desc d) : desc(std::move(d)), primitive(desc) {}
};

// A blocked layout: the inner blocks as (dimension, size), fastest last, and the strides of the outer indices.
struct BlockedLayout {
  Dims padded, strides;
  std::vector<std::pair<int, int64_t>> inner;
};
std::optional<BlockedLayout> layout_of(const Desc& desc);  // empty if the layout is not blocked

bool avx512_bf16();  // whether bfloat16 products use AVX512_BF16: no AMX, and faster than float32

dnnl::primitive_attr attributes();                                     // run() provides the scratchpad
[[noreturn]] void refuse(const dnnl::error& error, const char* what);  // throws a godwit::Error

// Thrown by plan() if the library has no kernel for this processor, data type and shape.
struct NoKernel : Error {
  using Error::Error;
};

// Creates a plan from the primitive's arguments. They are in oneDNN 3's order, without engine, hint and attributes.
template <class P, class... Args>
Plan<P> plan(const char* what, const Args&... args) try {
#if DNNL_VERSION_MAJOR < 3
  return Plan<P>({typename P::desc(args...), attributes(), engine()});
#else
  return Plan<P>({engine(), args..., attributes()});
#endif
} catch (const dnnl::error& error) {
  refuse(error, what);
}

// Creates a plan for a backward primitive that matches its forward primitive.
template <class P, class Forward, class... Args>
Plan<P> plan_backward(const char* what, const Plan<Forward>& forward, const Args&... args) try {
#if DNNL_VERSION_MAJOR < 3
  return Plan<P>({typename P::desc(args...), attributes(), engine(), forward.desc});
#else
  return Plan<P>({engine(), args..., forward.desc, attributes()});
#endif
} catch (const dnnl::error& error) {
  refuse(error, what);
}

Plan<dnnl::reorder> plan_reorder(const Desc& from, const Desc& to);

// Cache key of a plan: extents, options and flags (floats by std::bit_cast). Each Entry type has a separate cache.
struct Key : std::array<int64_t, 24> {
  template <std::integral... Parts>
  requires(sizeof...(Parts) < 24) explicit Key(Parts... parts)
      : std::array<int64_t, 24>{static_cast<int64_t>(parts)...} {}
};

struct KeyHash {
  size_t operator()(const Key& key) const;
};

// The calling thread's cached Entry for the key and context().threads; calls make() on a miss. The reference is valid
// until the thread's next call with the same Entry type.
template <class Entry, class Make>
const Entry& cached(Key key, Make make) {
  constexpr size_t kMost = 1024;  // bounds the memory if shapes never repeat
  thread_local std::unordered_map<Key, std::unique_ptr<Entry>, KeyHash> entries;
  key.back() = context().threads;
  auto found = entries.find(key);
  if (found == entries.end()) {
    if (entries.size() >= kMost) entries.clear();
    found = entries.emplace(key, std::make_unique<Entry>(make())).first;
  }
  return *found->second;
}

// The conversion of a float32 matrix from layout `plain` to `wanted` that pack_weights() performs: none (not possible),
// or packing of a matrix stored by rows or by columns.
enum class Blocks { none, of_rows, of_columns };
Blocks blocks_of(const Desc& plain, const Desc& wanted);

void arrange(const std::vector<Tensor>& w, Blocks blocks, const Desc& wanted, const Tensor& to);

// A primitive with weights: the plan, and the conversion if the primitive needs weights in another layout or in
// bfloat16. The conversion is a pack_weights() call for blocked matrices, otherwise a reorder.
template <class P>
struct Weighted {
  Plan<P> plan;
  Desc plain, wanted;
  std::optional<Plan<dnnl::reorder>> reorder;
  Blocks blocks = Blocks::none;

  enum class Use { read, written };
  Weighted(Plan<P> p, const Desc& plain_weights, const Desc& wanted_weights, Use use)
      : plan(std::move(p)), plain(plain_weights), wanted(wanted_weights) {
    if (use == Use::read) blocks = blocks_of(plain, wanted);
    if (wanted == plain || blocks != Blocks::none) return;
    reorder.emplace(use == Use::read ? plan_reorder(plain, wanted) : plan_reorder(wanted, plain));
  }

  // packed() converts `w` to the wanted layout. scratch() returns memory for weights that the primitive writes;
  // unpack() then converts them into `w`. If no conversion is needed, packed() and scratch() return `w` itself.
  Tensor packed(const Tensor& w) const;
  // Packs the parts of a matrix with pack_weights(). Requires that `blocks` is not none.
  Tensor packed(const std::vector<Tensor>& parts) const {
    const Tensor result = scratch(parts[0]);
    arrange(parts, blocks, wanted, result);
    return result;
  }
  Tensor scratch(const Tensor& w) const {
    if (!reorder && blocks == Blocks::none) return w;
    return Tensor({static_cast<int64_t>(wanted.get_size())}, DType::u8);
  }
  void unpack(const Tensor& from, const Tensor& w) const;
};

// The cached primitive that make() plans. Empty if make() returns empty. Also empty for bfloat16 if float32 is faster:
// on processors without fast bfloat16 products, and where oneDNN has only its reference loops.
template <class P, class Make>
const std::optional<Weighted<P>>& cached_if_any(const Key& key, DType dtype, Make make) {
  using Entry = std::optional<Weighted<P>>;
  return cached<Entry>(key, [&]() -> Entry {
    if (dtype == DType::bf16 && !fast_bf16()) return Entry();
    try {
      Entry entry = make();
      if (!entry || dtype != DType::bf16) return entry;
      const bool reference = std::string_view(entry->plan.desc.impl_info_str()).find("ref") != std::string_view::npos;
      return reference ? Entry() : entry;
    } catch (const NoKernel&) {
      if (dtype != DType::bf16) throw;
      return Entry();
    }
  });
}

// Executes a primitive with a scratchpad from the rank's pool:
//   run(plan, {{DNNL_ARG_SRC, memory(plan.desc.src_desc(), x)}, …});
void run(const dnnl::primitive& primitive, const Desc& scratchpad, std::unordered_map<int, dnnl::memory> arguments);
template <class P>
void run(const Plan<P>& plan, std::unordered_map<int, dnnl::memory> arguments) {
  run(plan.primitive, plan.desc.scratchpad_desc(), std::move(arguments));
}

template <class P>
Tensor Weighted<P>::packed(const Tensor& w) const {
  if (blocks != Blocks::none) return packed(std::vector<Tensor>{w});
  const Tensor result = scratch(w);
  if (reorder) run(*reorder, {{DNNL_ARG_FROM, memory(plain, w)}, {DNNL_ARG_TO, memory(wanted, result)}});
  return result;
}

template <class P>
void Weighted<P>::unpack(const Tensor& from, const Tensor& w) const {
  if (reorder) run(*reorder, {{DNNL_ARG_FROM, memory(wanted, from)}, {DNNL_ARG_TO, memory(plain, w)}});
}

}  // namespace godwit::onednn
