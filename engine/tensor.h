// Tensor: a cheap handle to contiguous row-major memory. Images are [n, h, w, c], filters [out, kh, kw, in].
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "engine/dtype.h"
#include "engine/pool.h"
#include "engine/shape.h"

namespace godwit {

// Where a kernel runs: kernels are overloaded by this tag.
struct Cpu {};

class Tensor {
 public:
  Tensor() = default;                                // undefined
  explicit Tensor(Shape shape, DType dtype = DType::f32);  // memory of the context's pool, uninitialised
  static Tensor zeros(Shape shape, DType dtype = DType::f32);
  static Tensor full(Shape shape, double value, DType dtype = DType::f32);
  template <class T>
  static Tensor of(std::span<const T> values, Shape shape);
  template <class T>
  static Tensor of(const std::vector<T>& values, Shape shape) { return of(std::span<const T>(values), shape); }
  static Tensor over(Buffer buffer, int64_t begin, Shape shape, DType dtype);  // its memory from byte `begin` on

  bool defined() const { return static_cast<bool>(buffer_); }
  const Shape& shape() const { return shape_; }
  int64_t dim(int i) const { return shape_[i]; }
  int64_t numel() const { return numel_; }
  DType dtype() const { return dtype_; }
  int64_t bytes() const { return numel_ * size_of(dtype_); }

  // The elements; T must be the tensor's type. A handle: constness of the tensor is not that of its memory.
  template <class T>
  T* data() const {
    check(dtype_of<T> == dtype_, "tensor ", shape_, ": holds ", dtype_, ", was asked for ", dtype_of<T>);
    return static_cast<T*>(raw());
  }
  template <class T>
  std::span<T> span() const { return {data<T>(), static_cast<size_t>(numel_)}; }
  void* raw() const { return buffer_.data() + offset_; }

  Tensor view(Shape shape) const;                          // the same memory, as many elements
  Tensor range(int64_t begin, int64_t count) const;        // flat elements [begin, begin + count) as [count]
  Tensor rows(int64_t begin, int64_t count) const;         // [begin, begin + count) of the first extent
  Tensor clone() const;
  Tensor to(DType dtype) const;                            // converted copy; to 16 bits rounded to nearest even
  void zero() const;
  void fill(double value) const;
  void copy_from(const Tensor& source) const;              // same type and number of elements
  bool same_memory(const Tensor& other) const { return buffer_ == other.buffer_ && offset_ == other.offset_; }
  bool shared() const { return buffer_.shared(); }         // other handles hold the buffer

  template <class T>
  std::vector<T> to_vector() const { auto s = span<T>(); return {s.begin(), s.end()}; }
  double item(int64_t i = 0) const;                        // element i of any numeric type

 private:
  Buffer buffer_;
  int64_t offset_ = 0;  // bytes
  int64_t numel_ = 0;
  Shape shape_;
  DType dtype_ = DType::f32;
};

template <class T>
Tensor Tensor::of(std::span<const T> values, Shape shape) {
  Tensor result(shape, dtype_of<T>);
  check(static_cast<int64_t>(values.size()) == shape.numel(), "tensor: ", values.size(), " values for shape ", shape);
  std::copy(values.begin(), values.end(), result.data<T>());
  return result;
}

// Throws unless the two have the same shape and type; `operation` and `name` begin the message.
void check_like(const Tensor& x, const Tensor& like, const char* operation, const char* name);

}  // namespace godwit
