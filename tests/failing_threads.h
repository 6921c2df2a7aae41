// Makes starts of threads fail on demand, whoever runs the tests: limits of processes do not bind root. Replaces
// pthread_create() for the whole program, so one source of a test program includes it.
#pragma once
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>

namespace godwit {

inline std::atomic<int> threads_allowed{-1};  // that still start; -1: all

// While it lives, `allowed` more threads start and the others are refused, as at the limit of processes.
class FailingThreads {
 public:
  explicit FailingThreads(int allowed) { threads_allowed = allowed; }
  ~FailingThreads() { threads_allowed = -1; }
  FailingThreads(const FailingThreads&) = delete;
  FailingThreads& operator=(const FailingThreads&) = delete;
};

// The sanitizers have a pthread_create() of their own, which must stay.
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
