// Makes thread creation fail on demand, also for root, to which process limits do not apply. Replaces pthread_create()
// for the whole program, so exactly one source file of a test program may include this header.
#pragma once
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>

namespace godwit {

inline std::atomic<int> threads_allowed{-1};  // number of threads that can still be started; -1: no limit

// Scope in which `allowed` more threads can be started. Further starts fail as at the process limit.
class FailingThreads {
 public:
  explicit FailingThreads(int allowed) { threads_allowed = allowed; }
  ~FailingThreads() { threads_allowed = -1; }
  FailingThreads(const FailingThreads&) = delete;
  FailingThreads& operator=(const FailingThreads&) = delete;
};

// The sanitizers replace pthread_create(), so this header must not replace it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadsCanFail = false;
#else
inline constexpr bool kThreadsCanFail = true;
#endif

}  // namespace godwit

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* data) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const Create create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  int allowed = godwit::threads_allowed;
  while (allowed > 0 && !godwit::threads_allowed.compare_exchange_weak(allowed, allowed - 1)) {
  }
  return allowed == 0 ? EAGAIN : create(thread, attributes, run, data);
}
#endif
