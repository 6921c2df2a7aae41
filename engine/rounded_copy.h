// bfloat16 copies of parameters on a GPU, written by the kernels that update the parameters.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "engine/half.h"
#include "engine/tensor.h"

namespace godwit {

// The elements of a float32 tensor on a GPU, rounded to bfloat16. Operations read the copy instead of rounding the
// tensor. The copy is current after an update() whose kernels wrote all elements, until the next write to the tensor.
// Memory is allocated when the first kernel writes the copy, after an operation has asked for it.
class RoundedCopy {
 public:
  // Of the first `numel` elements of x. The calling thread's operations use the copy while the object lives.
  static std::shared_ptr<RoundedCopy> of(const Tensor& x, int64_t numel);

  // Calls f, in which update_each(), update_by_parts() and update_by_turns() also write the copy, if x is their first
  // array. Other kernels of f must not write x after them. May be called on another thread, but not while operations
  // read x.
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
  int64_t written_ = 0;  // by update(): the elements before this one; -1: not in order
  std::atomic<bool> wanted_ = false, current_ = false;
};

// The copy of x, which is a view of a tensor with a RoundedCopy. Undefined if the copy is not current, or not aligned
// to 16 bytes, which libraries need. Captured CUDA graphs round the tensor again if the copy is out of date.
Tensor rounded_copy(const Tensor& x);

// For writers of memory: copies of the elements in these bytes are no longer current. Tensor's functions, collectives,
// update_each() and update_by_parts() call it. It finds copies of the calling thread and of the update() in progress.
void expire_rounded_copies(const void* address, int64_t bytes);

// For update_each(), which writes x[begin, end): where it writes the rounded value of x[0]; null: nowhere.
bf16* updated_copy(float* x, int64_t begin, int64_t end);

}  // namespace godwit
