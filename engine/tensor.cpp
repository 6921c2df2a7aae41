#include "engine/tensor.h"

#include <cstring>
#include <limits>
#include <type_traits>

#include "engine/context.h"
#include "engine/vector_loop.h"

namespace godwit {
namespace {

constexpr int64_t kCopyGrain = 1 << 20;  // bytes worth a thread

// Calls f.operator()<T>() for every type with C++ arithmetic.
template <class F>
auto dispatch_numeric(DType dtype, F&& f) {
  switch (dtype) {
    case DType::i32: return f.template operator()<int32_t>();
    case DType::i64: return f.template operator()<int64_t>();
    case DType::u8: return f.template operator()<uint8_t>();
    case DType::u32: return f.template operator()<uint32_t>();
    case DType::f16: return f.template operator()<f16>();
    case DType::bf16: return f.template operator()<bf16>();
    default: return dispatch_real(dtype, "tensor", std::forward<F>(f));
  }
}

// Through float32 where one side has 16 bits: rounding a float64 twice differs from once by less than the type resolves.
template <class To, class From>
GODWIT_INLINE inline To convert(From value) {
  if constexpr (std::is_same_v<compute_t<To>, To>) return static_cast<To>(static_cast<compute_t<From>>(value));
  else return To(static_cast<float>(value));
}

int64_t bytes_of(const Shape& shape, DType dtype) {
  check(shape.numel() <= std::numeric_limits<int64_t>::max() / size_of(dtype), "tensor: ", shape, " of ", dtype,
        " is more than any memory holds");
  return shape.numel() * size_of(dtype);
}

}  // namespace

Tensor::Tensor(Shape shape, DType dtype)
    : buffer_(context().pool, bytes_of(shape, dtype)), numel_(shape.numel()), shape_(shape), dtype_(dtype) {}

Tensor Tensor::zeros(Shape shape, DType dtype) {
  Tensor result(shape, dtype);
  result.zero();
  return result;
}

Tensor Tensor::full(Shape shape, double value, DType dtype) {
  Tensor result(shape, dtype);
  result.fill(value);
  return result;
}

Tensor Tensor::over(Buffer buffer, int64_t begin, Shape shape, DType dtype) {
  Tensor result;
  result.numel_ = shape.numel();
  result.shape_ = shape;
  result.dtype_ = dtype;
  const int64_t bytes = bytes_of(shape, dtype);
  check(begin >= 0 && bytes <= buffer.bytes() - begin, "tensor: ", shape, " of ", dtype, " from byte ", begin,
        " is not within a buffer of ", buffer.bytes(), " bytes");
  check(reinterpret_cast<uintptr_t>(buffer.data() + begin) % static_cast<uintptr_t>(size_of(dtype)) == 0,
        "tensor: byte ", begin, " of the buffer is not aligned to ", dtype);
  result.buffer_ = std::move(buffer);
  result.offset_ = begin;
  return result;
}

Tensor Tensor::view(Shape shape) const {
  check(shape.numel() == numel_, "view: ", shape_, " has ", numel_, " elements, ", shape, " has ", shape.numel());
  Tensor result = *this;
  result.shape_ = shape;
  return result;
}

Tensor Tensor::range(int64_t begin, int64_t count) const {
  check(begin >= 0 && count >= 0 && count <= numel_ - begin, "range: ", count, " elements from ", begin, " of ", numel_);
  Tensor result = *this;
  result.offset_ += begin * size_of(dtype_);
  result.shape_ = Shape{count};
  result.numel_ = count;
  return result;
}

Tensor Tensor::rows(int64_t begin, int64_t count) const {
  check(shape_.rank() > 0, "rows: the tensor is a scalar");
  check(begin >= 0 && count >= 0 && count <= dim(0) - begin, "rows: ", count, " from ", begin, " of ", shape_);
  const int64_t row = dim(0) ? numel_ / dim(0) : 0;
  std::vector<int64_t> extents(shape_.begin(), shape_.end());
  extents[0] = count;
  return range(begin * row, count * row).view(Shape(extents));
}

Tensor Tensor::clone() const {
  Tensor result(shape_, dtype_);
  result.copy_from(*this);
  return result;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return clone();
  Tensor result(shape_, dtype);
  dispatch_numeric(dtype_, [&]<class From>() {
    dispatch_numeric(dtype, [&]<class To>() {
      const From* from = data<From>();
      To* to = result.data<To>();
      vector_for(numel_, kCopyGrain, [=](int64_t begin, int64_t end) GODWIT_INLINE {
        for (int64_t i = begin; i < end; ++i) to[i] = convert<To>(from[i]);
      });
    });
  });
  return result;
}

void Tensor::zero() const {
  auto* bytes_begin = static_cast<std::byte*>(raw());
  parallel_for(bytes(), kCopyGrain, [&](int64_t begin, int64_t end) {
    std::memset(bytes_begin + begin, 0, static_cast<size_t>(end - begin));
  });
}

void Tensor::fill(double value) const {
  dispatch_numeric(dtype_, [&]<class T>() { std::fill_n(data<T>(), numel_, convert<T>(value)); });
}

void Tensor::copy_from(const Tensor& source) const {
  check(source.dtype_ == dtype_ && source.numel_ == numel_, "copy: ", dtype_, " ", shape_, " from ", source.dtype_, " ",
        source.shape_);
  auto* to = static_cast<std::byte*>(raw());
  const auto* from = static_cast<const std::byte*>(source.raw());
  if (to == from) return;
  parallel_for(bytes(), kCopyGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

double Tensor::item(int64_t i) const {
  check(i >= 0 && i < numel_, "item: element ", i, " of ", numel_);
  return dispatch_numeric(dtype_, [&]<class T>() { return convert<double>(data<T>()[i]); });
}

void check_like(const Tensor& x, const Tensor& like, const char* operation, const char* name) {
  check(x.shape() == like.shape() && x.dtype() == like.dtype(), operation, ": ", name, " is ", x.dtype(), " ",
        x.shape(), ", expected ", like.dtype(), " ", like.shape());
}

}  // namespace godwit
