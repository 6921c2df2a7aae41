#include "engine/tensor.h"

#include <cstring>
#include <limits>

#include "engine/context.h"
#include "engine/rounded_copy.h"
#include "engine/tensor_kernels.h"
#include "engine/vector_loop.h"

namespace godwit {
namespace {

constexpr int64_t kCopyGrain = 1 << 20;  // minimum bytes per thread

int64_t bytes_of(const Shape& shape, DType dtype) {
  check(shape.numel() <= std::numeric_limits<int64_t>::max() / size_of(dtype), "tensor: ", shape, " of ", dtype,
        " has more than 2^63 - 1 bytes");
  return shape.numel() * size_of(dtype);
}

Buffer allocated(const Shape& shape, DType dtype, Device device) {
  const int64_t bytes = bytes_of(shape, dtype);
  try {
    return Buffer(device.is_cuda() ? detail::cuda_pool(device) : context().pool, bytes);
  } catch (const Error& error) {
    throw error.with_text(detail::concat("tensor ", shape, " of ", dtype, ": ", error.what()));
  }
}

}  // namespace

namespace detail {

void zero(Cpu, const Tensor& x) {
  auto* begin_of_x = static_cast<std::byte*>(x.raw());
  parallel_for(x.bytes(), kCopyGrain, [&](int64_t begin, int64_t end) {
    std::memset(begin_of_x + begin, 0, static_cast<size_t>(end - begin));
  });
}

void fill(Cpu, const Tensor& x, double value) {
  dispatch_numeric(x.dtype(), [&]<class T>() { std::fill_n(x.data<T>(), x.numel(), converted<T>(value)); });
}

void convert(Cpu, const Tensor& x, const Tensor& y) {
  dispatch_numeric(x.dtype(), [&]<class From>() {
    dispatch_numeric(y.dtype(), [&]<class To>() {
      const From* from = x.data<From>();
      To* to = y.data<To>();
      vector_for(x.numel(), kCopyGrain, [=](int64_t begin, int64_t end) GODWIT_INLINE {
        for (int64_t i = begin; i < end; ++i) to[i] = converted<To>(from[i]);
      });
    });
  });
}

void copy(Cpu, const Tensor& x, const Tensor& y) {
  auto* to = static_cast<std::byte*>(y.raw());
  const auto* from = static_cast<const std::byte*>(x.raw());
  parallel_for(x.bytes(), kCopyGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace detail

Tensor::Tensor(Shape shape, DType dtype) : Tensor(shape, dtype, context().device) {}

Tensor::Tensor(Shape shape, DType dtype, Device device)
    : buffer_(allocated(shape, dtype, device)), numel_(shape.numel()), shape_(shape), dtype_(dtype) {}

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

Tensor Tensor::from_host(const void* values, int64_t count, Shape shape, DType dtype) {
  check(count == shape.numel(), "tensor: ", count, " values for shape ", shape);
  Tensor here(shape, dtype, kCpu);
  if (count > 0) std::memcpy(here.raw(), values, static_cast<size_t>(here.bytes()));
  return here.to(context().device);
}

Tensor Tensor::detached(Shape shape, DType dtype) {
  return over(Buffer::detached(bytes_of(shape, dtype), context().device), 0, shape, dtype);
}

void Tensor::attach(const Tensor& memory) const {
  check(memory.dtype_ == dtype_ && memory.numel_ == numel_ && offset_ == 0 && memory.offset_ == 0, "attach: ", dtype_,
        " ", shape_, " to ", memory.dtype_, " ", memory.shape_, "; expected two whole tensors of one type and size");
  buffer_.attach(memory.buffer_);
}

void Tensor::detach() const { buffer_.detach(); }

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
  check(begin >= 0 && count >= 0 && count <= numel_ - begin, "range: ", count, " elements from ", begin, " of ",
        numel_);
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
  Tensor result(shape_, dtype_, device());
  result.copy_from(*this);
  return result;
}

Tensor Tensor::to(DType dtype) const {
  check(defined(), "to: the tensor is undefined");
  if (dtype == dtype_) return clone();
  Tensor result(shape_, dtype, device());
  on_device(*this, [&](auto device) { detail::convert(device, *this, result); });
  return result;
}

Tensor Tensor::to(Device device) const {
  if (device == this->device()) return *this;
  Tensor result(shape_, dtype_, device);
  result.copy_from(*this);
  return result;
}

void Tensor::zero() const {
  if (numel_ == 0) return;
  if (device().is_cuda()) expire_rounded_copies(address(), bytes());
  on_device(*this, [&](auto device) { detail::zero(device, *this); });
}

void Tensor::fill(double value) const {
  if (device().is_cuda()) expire_rounded_copies(address(), bytes());
  on_device(*this, [&](auto device) { detail::fill(device, *this, value); });
}

void Tensor::copy_from(const Tensor& source) const {
  check(source.dtype_ == dtype_ && source.numel_ == numel_, "copy: ", dtype_, " ", shape_, " from ", source.dtype_, " ",
        source.shape_);
  if (address() == source.address() || numel_ == 0) return;
  if (device().is_cuda()) expire_rounded_copies(address(), bytes());
  on_device(device().is_cuda() ? *this : source, [&](auto device) { detail::copy(device, source, *this); });
}

double Tensor::item(int64_t i) const {
  check(i >= 0 && i < numel_, "item: element ", i, " of ", numel_);
  if (device().is_cuda()) return range(i, 1).to(kCpu).item();
  return detail::dispatch_numeric(dtype_, [&]<class T>() { return detail::converted<double>(data<T>()[i]); });
}

void Tensor::refuse_dim(int i) const { fail("dim: ", shape_, " has no dimension ", i); }

void Tensor::refuse_cpu() const {
  fail("tensor ", shape_, " of ", dtype_, " is on ", device(),
       ", but this operation runs only on the CPU; move the tensor with ", "to(kCpu), or train with --device cpu");
}

void Tensor::refuse_detached() const {
  fail("tensor ", shape_, " of ", dtype_, " has no memory now; a sharded parameter (zero3, hybrid) has values only ",
       "while an operation reads it through Var::value()");
}

void Tensor::refuse_cuda() const {
  fail("tensor ", shape_, " of ", dtype_, " is on the CPU; a kernel on ", context().device,
       " cannot read it; move the tensor with to(device)");
}

void check_like(const Tensor& x, const Tensor& like, const char* operation, const char* name) {
  check(x.shape() == like.shape() && x.dtype() == like.dtype(), operation, ": ", name, " is ", x.dtype(), " ",
        x.shape(), ", expected ", like.dtype(), " ", like.shape());
  check(x.device() == like.device(), operation, ": ", name, " is on ", x.device(), ", expected on ", like.device());
}

}  // namespace godwit
