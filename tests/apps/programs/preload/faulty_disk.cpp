// Preloaded into a program by tests to emulate a slow or full disk. `part` is a substring that selects paths.
//   FAULTY_SLOW="part milliseconds"    rename() to such a path is delayed by this time
//   FAULTY_FULL="part bytes failures"  write() to such a file fails beyond this size, this many times
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

struct Fault {
  char part[200] = "";
  long amount = 0, times = 0;

  explicit Fault(const char* variable) {
    const char* text = std::getenv(variable);
    if (text && std::sscanf(text, "%199s %ld %ld", part, &amount, &times) < 2) std::abort();
  }
  bool hits(const char* path) const { return *part && std::strstr(path, part); }
};

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int rename(const char* from, const char* to) {
  static const Fault slow("FAULTY_SLOW");
  if (slow.hits(to)) std::this_thread::sleep_for(std::chrono::milliseconds(slow.amount));
  return next<int(const char*, const char*)>("rename")(from, to);
}

extern "C" ssize_t write(int file, const void* data, size_t size) {
  static const Fault full("FAULTY_FULL");
  static std::atomic<long> failures{0};
  char path[4096] = "";
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, sizeof(path) - 1);
  if (length > 0 && full.hits(path) && failures < full.times) {
    const long room = full.amount - ::lseek(file, 0, SEEK_CUR);
    if (room <= 0) {
      ++failures;
      errno = ENOSPC;
      return -1;
    }
    size = std::min(size, static_cast<size_t>(room));
  }
  return next<ssize_t(int, const void*, size_t)>("write")(file, data, size);
}
