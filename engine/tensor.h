// Tensor: a handle to contiguous row-major memory. Copies of the handle share the memory. Images are [n, h, w, c],
// filters [out, kh, kw, in].
#pragma once
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "engine/dtype.h"
#include "engine/pool.h"
#include "engine/shape.h"

// Distributed training: tensors, differentiable operations, collectives, exchanges, optimizers and models.
namespace godwit {

// Elements of one type with a shape, on one device.
class Tensor {
 public:
  Tensor() = default;                                // undefined
  Tensor(const Tensor&) = default;                   // another handle to the same memory
  Tensor& operator=(const Tensor&) = default;        // another handle to the same memory
  Tensor(Tensor&& from) noexcept { *this = std::move(from); }  // leaves `from` undefined
  Tensor& operator=(Tensor&& from) noexcept {                  // leaves `from` undefined
    buffer_ = std::move(from.buffer_);
    offset_ = std::exchange(from.offset_, 0);
    numel_ = std::exchange(from.numel_, 0);
    shape_ = std::exchange(from.shape_, Shape());
    dtype_ = from.dtype_;
    return *this;
  }
  // Allocates uninitialized memory on the context's device.
  explicit Tensor(Shape shape, DType dtype = DType::f32);
  Tensor(Shape shape, DType dtype, Device device);  // uninitialized, on the CPU or the context's GPU
  static Tensor zeros(Shape shape, DType dtype = DType::f32);  // zeros on the context's device
  // A tensor filled with `value`, on the context's device.
  static Tensor full(Shape shape, double value, DType dtype = DType::f32);
  // A copy of the values on the context's device. Throws if the number of values differs from the shape's number of
  // elements.
  template <class T>
  static Tensor of(std::span<const T> values, Shape shape) {
    return from_host(values.data(), static_cast<int64_t>(values.size()), shape, dtype_of<T>);
  }
  template <class T>
  static Tensor of(const std::vector<T>& values, Shape shape) { return of(std::span<const T>(values), shape); }
  static Tensor detached(Shape shape, DType dtype);  // on the context's device; has no memory until attach()
  static Tensor over(Buffer buffer, int64_t begin, Shape shape, DType dtype);  // view of the buffer, from byte `begin`

  bool defined() const { return static_cast<bool>(buffer_); }  // false for Tensor()
  const Shape& shape() const { return shape_; }                // extents
  int64_t dim(int i) const {                                   // extent i; throws if there is none
    if (i < 0 || i >= shape_.rank()) [[unlikely]]
      refuse_dim(i);
    return shape_[i];
  }
  int64_t numel() const { return numel_; }                     // number of elements
  DType dtype() const { return dtype_; }                       // element type
  int64_t bytes() const { return numel_ * size_of(dtype_); }   // size of the elements
  Device device() const { return buffer_.device(); }           // device of the memory

  // Pointer to the elements. Throws unless T is the tensor's type and the tensor is on the CPU. A const Tensor gives
  // mutable access, because a Tensor is a handle.
  template <class T>
  T* data() const {
    check_type(dtype_of<T>);
    return static_cast<T*>(raw());
  }
  template <class T>
  std::span<T> span() const { return {data<T>(), static_cast<size_t>(numel_)}; }  // data() and numel() as a span
  void* raw() const {  // address(); throws unless the tensor is on the CPU
    if (device().is_cuda()) [[unlikely]]
      refuse_cpu();
    return address();
  }
  // Pointer to the elements of a GPU tensor, for kernels. Throws unless T is the tensor's type and the tensor is on a
  // GPU.
  template <class T>
  T* cuda_data() const {
    check_type(dtype_of<T>);
    if (!device().is_cuda()) [[unlikely]]
      refuse_cuda();
    return static_cast<T*>(address());
  }
  void* address() const {  // pointer on any device; throws if the tensor is detached
    if (buffer_ && !buffer_.data()) [[unlikely]]
      refuse_detached();
    return buffer_.data() + offset_;
  }

  Tensor view(Shape shape) const;                    // view of all elements with another shape
  Tensor range(int64_t begin, int64_t count) const;  // flat elements [begin, begin + count) as [count]
  Tensor rows(int64_t begin, int64_t count) const;   // rows [begin, begin + count) of the first extent
  Tensor clone() const;                              // copy in new memory on the same device
  // Converted copy. Rounds to nearest even; from float64 to 16 bits, rounds to float32 first.
  Tensor to(DType dtype) const;
  Tensor to(Device device) const;                    // copy on the device; the tensor itself if it is already there
  void zero() const;                                 // sets all elements to 0
  void fill(double value) const;                     // sets all elements to `value`
  // Copies a tensor of the same type and number of elements, from either device. A copy from a GPU blocks until the
  // values have arrived. A copy to a GPU returns once the source may be modified.
  void copy_from(const Tensor& source) const;
  // Gives the memory of `memory` to this tensor, which detached() created, and to all of its views. See
  // Buffer::attach().
  void attach(const Tensor& memory) const;
  void detach() const;  // removes the memory from the tensor and its views
  bool attached() const { return buffer_.data() != nullptr; }  // false for Tensor() and while detached
  // True for tensors of detached(), for their views, and for external memory.
  bool attachable() const { return buffer_.attachable(); }
  bool same_buffer(const Tensor& other) const { return buffer_ == other.buffer_; }  // same buffer, any offset
  // Whether both tensors begin at the same address.
  bool same_memory(const Tensor& other) const { return buffer_ == other.buffer_ && offset_ == other.offset_; }
  bool shared() const { return buffer_.shared(); }         // whether other handles share the buffer

  // A copy of the elements on the host. Throws unless T is the tensor's type.
  template <class T>
  std::vector<T> to_vector() const {
    const Tensor here = to(kCpu);
    return {here.data<T>(), here.data<T>() + numel_};
  }
  double item(int64_t i = 0) const;                        // element i of any numeric type

 private:
  static Tensor from_host(const void* values, int64_t count, Shape shape, DType dtype);
  void check_type(DType asked) const {
    check(asked == dtype_, "tensor ", shape_, ": has type ", dtype_, ", requested as ", asked);
  }
  [[noreturn]] void refuse_dim(int i) const;
  [[noreturn]] void refuse_cpu() const;
  [[noreturn]] void refuse_detached() const;
  [[noreturn]] void refuse_cuda() const;

  Buffer buffer_;
  int64_t offset_ = 0;  // bytes
  int64_t numel_ = 0;
  Shape shape_;
  DType dtype_ = DType::f32;
};

// Calls f(Cpu{}) or f(Cuda), depending on the device of x. Operations use it to select a kernel:
//   on_device(x, [&](auto device) { relu_forward(device, x, y); });
template <class F>
decltype(auto) on_device([[maybe_unused]] const Tensor& x, F&& f) {
#ifdef GODWIT_HAS_CUDA
  if (x.device().is_cuda()) return f(cuda_of(x.device()));
#endif
  return f(Cpu{});
}

// Throws unless both tensors have the same shape, type and device. The message begins with `operation` and `name`.
void check_like(const Tensor& x, const Tensor& like, const char* operation, const char* name);

}  // namespace godwit
