#include "engine/event.h"

#include "engine/check.h"
#include "engine/context.h"
#include "engine/cuda/cuda_context.h"

namespace godwit {

Event Event::record() {
  Event mark;
  if (const auto& cuda = context().cuda) {
    check(!cuda->graph_capture, "cannot synchronize with other threads during CUDA graph capture; call graph_break()");
    const auto event = std::make_shared<CudaEvent>();
    event->record(cuda->stream.get());
    mark.event_ = event;
  }
  return mark;
}

void Event::wait() const {
  if (!event_) return;
  const auto& cuda = context().cuda;
  const auto& event = *static_cast<const CudaEvent*>(event_.get());
  if (cuda) event.wait(cuda->stream.get());
  else cuda_check(event.synchronize(), "cudaEventSynchronize");
}

void Event::block() const {
  if (!event_) return;
  const cudaError_t status = static_cast<const CudaEvent*>(event_.get())->synchronize();
  if (const auto& cuda = context().cuda) cuda->aborted->check();
  cuda_check(status, "cudaEventSynchronize");
}

}  // namespace godwit
