// Tests preload this library into a program to emulate a slow or full disk, little memory, a clock that jumps, or
// another MPI library. `part` is a substring that selects paths.
//   FAULTY_SLOW="part milliseconds"    rename() to such a path is delayed by this time
//   FAULTY_FULL="part bytes failures"  write() to such a file fails beyond this size, this many times
//   FAULTY_ROOM="part MiB"             statvfs() reports this much room on the disk of such a path
//   FAULTY_MEMORY=bytes                aligned_alloc(), which tensors use, fails if the sum of sizes exceeds this limit
//   FAULTY_CLOCK=seconds               the time of day jumps forward or back by this much with each call
//   FAULTY_KILL="part files"           the process is killed when unlinkat() has removed this many files of such folders
//   FAULTY_MPI=text                    MPI reports this as its version
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <time.h>
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

std::string path_of(int file) {
  char path[4096] = "";
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, sizeof(path) - 1);
  return {path, static_cast<size_t>(std::max<ssize_t>(length, 0))};
}

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
  if (full.hits(path_of(file).c_str()) && failures < full.times) {
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

extern "C" int unlinkat(int folder, const char* name, int flags) {
  static const Fault killed("FAULTY_KILL");
  static std::atomic<long> files{0};
  const int result = next<int(int, const char*, int)>("unlinkat")(folder, name, flags);
  if (result == 0 && !(flags & AT_REMOVEDIR) && killed.hits(path_of(folder).c_str()) && ++files == killed.amount)
    ::kill(::getpid(), SIGKILL);
  return result;
}

extern "C" int statvfs(const char* path, struct statvfs* of) {
  static const Fault room("FAULTY_ROOM");
  const int result = next<int(const char*, struct statvfs*)>("statvfs")(path, of);
  if (result == 0 && room.hits(path)) of->f_bavail = (static_cast<unsigned long>(room.amount) << 20) / of->f_frsize;
  return result;
}

extern "C" void* aligned_alloc(size_t alignment, size_t size) {
  static const char* const limit = std::getenv("FAULTY_MEMORY");
  static std::atomic<size_t> sum{0};
  if (limit && (sum += size) > std::strtoull(limit, nullptr, 10)) {
    errno = ENOMEM;
    return nullptr;
  }
  return next<void*(size_t, size_t)>("aligned_alloc")(alignment, size);
}

extern "C" int clock_gettime(clockid_t clock, timespec* now) {
  static const char* const seconds = std::getenv("FAULTY_CLOCK");
  static std::atomic<long> calls{0};
  const int result = next<int(clockid_t, timespec*)>("clock_gettime")(clock, now);
  if (seconds && clock == CLOCK_REALTIME && ++calls % 2) now->tv_sec += std::atol(seconds);
  return result;
}

extern "C" time_t time(time_t* to) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}

extern "C" int MPI_Get_library_version(char* version, int* length) {
  static const char* const other = std::getenv("FAULTY_MPI");
  if (!other) return next<int(char*, int*)>("MPI_Get_library_version")(version, length);
  *length = std::snprintf(version, 256, "%s", other);  // MPI guarantees this size
  return 0;
}
