#include "engine/context.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "engine/check.h"
#include "engine/process_limits.h"
#ifdef _OPENMP
#include <omp.h>
#endif

namespace godwit {
namespace {

// The number of threads that OpenMP can start: `wanted`, or OMP_THREAD_LIMIT if it is lower.
int possible_threads(int wanted) {
#ifdef _OPENMP
  return std::clamp(wanted, 1, omp_get_thread_limit());
#else
  (void)wanted;
  return 1;
#endif
}

// Libraries (oneDNN, Eigen) take their thread count from OpenMP. A parallel region must get this number of threads:
// oneDNN waits for all of them. So OMP_DYNAMIC and OMP_MAX_ACTIVE_LEVELS=0 have no effect.
void apply_threads(int threads) {
#ifdef _OPENMP
  omp_set_dynamic(0);
  if (omp_get_max_active_levels() < 1) omp_set_max_active_levels(1);
  omp_set_num_threads(threads);
#else
  (void)threads;
#endif
}

Context first_context() {
  Context first;
  first.threads = possible_threads(hardware_threads());
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
  next.threads = possible_threads(next.threads);
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
  if (sched_getaffinity(0, sizeof(set), &set) != 0)  // more than 1,024 processors
    return within_cpu_limit(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  return within_cpu_limit(std::max(1, CPU_COUNT(&set)));
}

}  // namespace godwit
