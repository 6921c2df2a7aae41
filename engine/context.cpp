#include "engine/context.h"

#include <sched.h>

#include <algorithm>

#include "engine/check.h"
#ifdef _OPENMP
#include <omp.h>
#endif

namespace godwit {
namespace {

// Libraries (oneDNN, Eigen) take their thread count from OpenMP.
void apply_threads(int threads) {
#ifdef _OPENMP
  omp_set_num_threads(threads);
#else
  (void)threads;
#endif
}

Context first_context() {
  Context first;
#ifdef _OPENMP
  first.threads = hardware_threads();
#endif
  apply_threads(first.threads);
  return first;
}

Context& mutable_context() {
  thread_local Context current = first_context();
  return current;
}

}  // namespace

const Context& context() { return mutable_context(); }

ContextGuard::ContextGuard(Context next) : previous_(mutable_context()) {
  next.threads = std::max(1, next.threads);
#ifndef _OPENMP
  next.threads = 1;
#endif
  apply_threads(next.threads);
  if (next.cuda) detail::make_current(*next.cuda);
  mutable_context() = std::move(next);
}

ContextGuard::~ContextGuard() {
  apply_threads(previous_.threads);
  try {
    if (previous_.cuda) detail::make_current(*previous_.cuda);
  } catch (const Error&) {  // lost device: the next call reports the error
  }
  mutable_context() = std::move(previous_);
}

Context context_on(Device device, bool high_priority) {
  check_usable(device);
  Context next = context();
  next.device = device;
  next.cuda = device.is_cuda() ? detail::make_cuda_context(device.index, high_priority) : nullptr;
  return next;
}

void synchronize() {
  if (context().cuda) detail::synchronize(*context().cuda);
}

NoGrad::NoGrad() : previous_(context().grad_enabled) { mutable_context().grad_enabled = false; }
NoGrad::~NoGrad() { mutable_context().grad_enabled = previous_; }

int hardware_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace godwit
