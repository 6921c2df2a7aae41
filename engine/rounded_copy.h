// RoundedCopy: a bfloat16 copy of parameters on a GPU, written by the kernels that update the parameters.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "engine/half.h"
#include "engine/tensor.h"

namespace godwit {

// The elements of a float32 tensor on a GPU, rounded to bfloat16. Operations read the copy instead of rounding the
// tensor. The copy becomes current after an update() whose kernels wrote all elements. It stays current until the next
// write to the tensor. Its memory is allocated by the first update() after an operation has requested the copy.
class RoundedCopy {
 public:
  // A copy of the first `numel` elements of x. Operations of the calling thread use the copy while the object exists.
  static std::shared_ptr<RoundedCopy> of(const Tensor& x, int64_t numel);

  // Calls f. Within f, update_each() and update_by_turns() also write the copy if x is their first array, as do kernels
  // with detail::rounded_target(). After these calls, other kernels of f must not write x. update() may be called on
  // another thread, but not while operations read x.
  void update(const std::function<void()>& f);

 private:
  RoundedCopy(const Tensor& x, int64_t numel) : x_(x), begin_(x.cuda_data<float>()), numel_(numel) {}
  bool contains(const void* address) const { return address >= begin_ && address < begin_ + x_.numel(); }
  void refresh();
  friend Tensor rounded_copy(const Tensor& x);
  friend void expire_rounded_copies(const void* address, int64_t bytes);
  friend bf16* updated_copy(float* x, int64_t begin, int64_t end);

  Tensor x_, memory_;
  const float* begin_;
  int64_t numel_;
  int64_t written_ = 0;  // number of leading elements written by update(); -1: written out of order
  std::atomic<bool> wanted_ = false, current_ = false;
};

// The bfloat16 values of x, a view of a tensor with a RoundedCopy. Undefined if there is no copy, if the copy is out of
// date, or if x's part of the copy is not aligned to 16 bytes, as libraries require. A replay of a captured CUDA graph
// first refreshes a copy that is out of date.
Tensor rounded_copy(const Tensor& x);

// Marks copies of the elements in these bytes as out of date. This concerns the calling thread's copies and the copy
// whose update() is in progress. All writers of GPU memory call this function: Tensor's functions, collectives,
// update_each(), update_by_turns() and detail::rounded_target().
void expire_rounded_copies(const void* address, int64_t bytes);

// For update_each() on x[begin, end): the address of the rounded value of x[0]; null if x has no copy to write.
bf16* updated_copy(float* x, int64_t begin, int64_t end);

}  // namespace godwit
