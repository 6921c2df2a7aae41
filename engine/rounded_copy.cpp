#include "engine/rounded_copy.h"

#include <utility>
#include <vector>

#include "engine/graph.h"

namespace godwit {
namespace {

thread_local std::vector<std::weak_ptr<RoundedCopy>> copies;
thread_local RoundedCopy* updating = nullptr;

}  // namespace

std::shared_ptr<RoundedCopy> RoundedCopy::of(const Tensor& x, int64_t numel) {
  std::erase_if(copies, [](const auto& copy) { return copy.expired(); });
  const std::shared_ptr<RoundedCopy> copy(new RoundedCopy(x, numel));
  copies.push_back(copy);
  return copy;
}

void RoundedCopy::update(const std::function<void()>& f) {
  current_ = false;
  if (!wanted_) return f();
  written_ = 0;
  {
    struct Scope {
      RoundedCopy* before;
      ~Scope() { updating = before; }
    };
    const Scope scope{std::exchange(updating, this)};
    f();
  }
  current_ = written_ == numel_;
}

void RoundedCopy::refresh() {
  if (current_) return;
  memory_.copy_from(x_.to(DType::bf16));
  current_ = true;
}

Tensor rounded_copy(const Tensor& x) {
  for (const auto& weak : copies) {
    const std::shared_ptr<RoundedCopy> copy = weak.lock();
    if (!copy || !copy->x_.same_buffer(x)) continue;
    copy->wanted_ = true;
    if (!copy->current_) return {};
    const int64_t first = x.cuda_data<float>() - copy->begin_;
    const Tensor view = copy->memory_.range(first, x.numel()).view(x.shape());
    if (reinterpret_cast<uintptr_t>(view.address()) % 16 != 0) return {};
    on_replay([copy] { copy->refresh(); });
    return view;
  }
  return {};
}

void expire_rounded_copies(const void* address, int64_t bytes) {
  const void* const last = static_cast<const std::byte*>(address) + bytes - 1;
  const auto expire = [&](RoundedCopy& copy) {
    if (bytes == 0 || last < copy.begin_ || address >= copy.begin_ + copy.x_.numel()) return;
    copy.current_ = false;
    if (&copy == updating) copy.written_ = -1;
  };
  if (updating) expire(*updating);
  for (const auto& weak : copies)
    if (const std::shared_ptr<RoundedCopy> copy = weak.lock()) expire(*copy);
}

bf16* updated_copy(float* x, int64_t begin, int64_t end) {
  if (!updating || begin >= end || !updating->contains(x + begin)) {
    expire_rounded_copies(x + begin, (end - begin) * static_cast<int64_t>(sizeof(float)));
    return nullptr;
  }
  RoundedCopy& copy = *updating;
  if (!copy.memory_.defined()) copy.memory_ = Tensor(copy.x_.shape(), DType::bf16, copy.x_.device());
  const int64_t offset = x - copy.begin_;
  if (offset + begin == 0) copy.written_ = 0;
  copy.written_ = copy.written_ == offset + begin ? offset + end : -1;
  return copy.memory_.cuda_data<bf16>() + offset;
}

}  // namespace godwit
