#include "races.h"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

namespace emulated {
namespace {

constexpr size_t kWord = 4;  // bytes of a cell, unless an access covers a part of them

struct Access {
  uint32_t item = 0;  // index of items; 0: none
  uint32_t block = 0;
  uint32_t place = 0;  // offset of the instruction in the program; 0: unknown
  uint16_t thread = 0, block_barriers = 0, warp_barriers = 0;
  uint8_t grid_barriers = 0, atomic = 0;
};

// The last write, and reads after it that have not all happened before each other.
struct Cell {
  Access write, reads[3];
  uint32_t split = 0;  // 0, or 1 + index of the cells of the word's bytes
};

template <class T>
T* map_zeros(size_t count) {
  void* const data =
      mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) stop("no memory for the race detector");
  return static_cast<T*>(data);
}

// The cells of a range of memory.
struct Shadow {
  Shadow(const void* data, size_t size, bool in_block)
      : begin(reinterpret_cast<uintptr_t>(data)), bytes(size), shared(in_block) {}
  ~Shadow() { munmap(cells, count * sizeof(Cell)); }
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  const uintptr_t begin;
  const size_t bytes, count = bytes / kWord + 1;
  const bool shared;  // memory of a block
  Cell* const cells = map_zeros<Cell>(count);
  std::deque<std::array<Cell, kWord>> parts;
};

struct Origin {
  Label label;
  unsigned stream, position;
  std::array<void*, 12> callers;
};

struct Watched {
  std::mutex mutex;
  std::map<uintptr_t, Shadow> shadows;                 // shadows of device memory, by address
  std::vector<Origin> items = std::vector<Origin>(1);  // changed by the thread that runs an item
};
Watched& watched() {
  static Watched* const all = new Watched;
  return *all;
}

// The running item and kernel thread of the calling thread.
struct Now {
  bool active = false, reported = false;
  Access self;
  const Clock* clock = nullptr;
  Shadow* memory = nullptr;  // memory of the last access
  Shadow* block = nullptr;
  uintptr_t stacks = 0, indices = 0;
  size_t stack_bytes = 0, index_bytes = 0;
  uint32_t known = 0;  // the item of the last comparison
  bool known_before = false;
};
constinit thread_local Now now;

// Finds the program's base address, and the thread_local variables of the calling thread, which hold shared memory.
struct Program {
  uintptr_t base = 0, variables = 0;
  size_t variable_bytes = 0;
  Program() {
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* result) {
          auto& program = *static_cast<Program*>(result);
          program.base = info->dlpi_addr;
          program.variables = reinterpret_cast<uintptr_t>(info->dlpi_tls_data);
          for (int i = 0; i < info->dlpi_phnum; ++i)
            if (info->dlpi_phdr[i].p_type == PT_TLS) program.variable_bytes = info->dlpi_phdr[i].p_memsz;
          return 1;  // the first object is the program
        },
        this);
  }
};

// The function at an address of the program.
std::string function_at(uintptr_t offset) {
  char program[4096] = "", command[4200] = "", name[2048] = "";
  if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0) return "?";
  std::snprintf(command, sizeof(command), "addr2line -Cfpe '%s' %zx", program, offset);
  std::FILE* const pipe = popen(command, "r");
  if (!pipe) return "?";
  if (!std::fgets(name, sizeof(name), pipe)) name[0] = 0;
  pclose(pipe);
  std::string text = name;
  for (const char* const unknown : {"\n", " at ?", " at :", ":?"})
    text.erase(std::min(text.find(unknown), text.size()));
  return text.empty() ? "?" : text;
}

std::string described(const Access& access, bool write) {
  const Origin& origin = watched().items[access.item];
  const uintptr_t base = Program().base;
  const auto function = [&](const void* at) { return function_at(reinterpret_cast<uintptr_t>(at) - base); };
  std::string text = access.atomic ? "atomic access" : write ? "write" : "read";
  text += " by " + (origin.label.text ? origin.label.text : function(origin.label.kernel)) + " in stream " +
          std::to_string(origin.stream);
  if (!origin.label.text)
    text += ", block " + std::to_string(access.block) + ", thread " + std::to_string(access.thread);
  if (access.place) text += ", in " + function_at(access.place - 1);
  for (void* const caller : origin.callers)
    if (caller) text += "\n    queued in " + function(static_cast<std::byte*>(caller) - 1);
  return text;
}

void report(const Shadow& shadow, size_t offset, const Access& first, bool first_writes, bool second_writes) {
  if (std::exchange(now.reported, true)) return;
  const std::string text =
      "race on byte " + std::to_string(offset) + " of " +
      (shadow.shared ? "shared memory" : std::to_string(shadow.bytes) + " bytes of device memory") + ":\n  " +
      described(first, first_writes) + "\n  " + described(now.self, second_writes);
  if (on_race) return on_race(text);
  std::fprintf(stderr, "emulated GPU: %s\n", text.c_str());
  std::abort();
}

// Whether an item has happened before the running item.
bool after(uint32_t item) {
  if (now.known != item) {
    const Origin& origin = watched().items[item];
    now.known = item;
    now.known_before = origin.stream < now.clock->size() && (*now.clock)[origin.stream] >= origin.position;
  }
  return now.known_before;
}

bool same_thread(const Access& a) {
  return a.item == now.self.item && a.block == now.self.block && a.thread == now.self.thread;
}
bool happened_before(const Access& a, bool shared) {
  const Access& self = now.self;
  if (a.item == 0) return true;
  if (a.item != self.item) return shared || after(a.item);
  if (a.block != self.block) return shared || a.grid_barriers < self.grid_barriers;
  return a.thread == self.thread || a.block_barriers < self.block_barriers ||
         (a.thread / 32 == self.thread / 32 && a.warp_barriers < self.warp_barriers);
}

// Keeps readers of different blocks and warps: an access that conflicts with a dropped reader then conflicts with a
// kept reader too.
void add_read(Cell& cell, bool shared) {
  for (Access& read : cell.reads)
    if (same_thread(read) || happened_before(read, shared)) {
      read = now.self;
      return;
    }
  for (const Access& read : cell.reads)
    if (read.item == now.self.item && read.block == now.self.block && read.thread / 32 == now.self.thread / 32) return;
  cell.reads[2] = now.self;
}

void check(const Shadow& shadow, Cell& cell, size_t offset, bool write) {
  if (!write && same_thread(cell.reads[0])) {  // a write since then would have removed this read
    cell.reads[0] = now.self;
    return;
  }
  const bool both_atomic = cell.write.atomic && now.self.atomic;
  if (!both_atomic && !happened_before(cell.write, shadow.shared)) report(shadow, offset, cell.write, true, write);
  if (!write) return add_read(cell, shadow.shared);
  for (Access& read : cell.reads) {
    if (!happened_before(read, shadow.shared)) report(shadow, offset, read, false, true);
    read = {};
  }
  cell.write = now.self;
}

void check_range(Shadow& shadow, size_t offset, size_t bytes, bool write) {
  const size_t end = offset + bytes;
  for (size_t word = offset / kWord; word * kWord < end; ++word) {
    Cell& cell = shadow.cells[word];
    const size_t first = std::max(offset, word * kWord), last = std::min(end, (word + 1) * kWord);
    if (cell.split == 0 && last - first == kWord) {
      check(shadow, cell, first, write);
      continue;
    }
    if (cell.split == 0) {
      shadow.parts.push_back({cell, cell, cell, cell});
      cell.split = static_cast<uint32_t>(shadow.parts.size());
    }
    for (size_t byte = first; byte < last; ++byte)
      check(shadow, shadow.parts[cell.split - 1][byte % kWord], byte, write);
  }
}

Shadow* shadow_of(uintptr_t at) {
  if (now.memory && at - now.memory->begin < now.memory->bytes) return now.memory;
  if (at - now.block->begin < now.block->bytes) return now.block;
  std::lock_guard lock(watched().mutex);
  auto& all = watched().shadows;
  auto found = all.upper_bound(at);
  if (found == all.begin() || at - (--found)->first >= found->second.bytes) return nullptr;
  return now.memory = &found->second;
}

[[gnu::noinline]] void note(const void* data, size_t bytes, bool write, const void* place, bool atomic) {
  const auto at = reinterpret_cast<uintptr_t>(data);
  if (at - now.stacks < now.stack_bytes || at - now.indices < now.index_bytes) return;
  Shadow* const shadow = shadow_of(at);
  if (!shadow) return;  // memory of the host
  static const uintptr_t base = Program().base;
  now.self.place = place ? static_cast<uint32_t>(reinterpret_cast<uintptr_t>(place) - base) : 0;
  now.self.atomic = atomic;
  const size_t offset = at - shadow->begin;
  check_range(*shadow, offset, std::min(bytes, shadow->bytes - offset), write);
}

void access(const void* data, size_t bytes, bool write, const void* place, bool atomic = false) {
  if (now.active) [[unlikely]]
    note(data, bytes, write, place, atomic);
}

}  // namespace

void watch(void* data, size_t bytes) {
  if (setting("GODWIT_EMULATED_STREAMS", 0) == 0) return;
  std::lock_guard lock(watched().mutex);
  watched().shadows.try_emplace(reinterpret_cast<uintptr_t>(data), data, bytes, false);
}
void unwatch(void* data) {
  std::lock_guard lock(watched().mutex);
  watched().shadows.erase(reinterpret_cast<uintptr_t>(data));
}

void begin_item(const Item& item, unsigned stream, const Clock& clock) {
  thread_local const Program program;
  thread_local Shadow block(reinterpret_cast<const void*>(program.variables), program.variable_bytes, true);
  watched().items.push_back({item.label, stream, clock[stream], item.callers});
  now.active = true;
  now.reported = false;
  now.self = {.item = static_cast<uint32_t>(watched().items.size() - 1)};
  now.clock = &clock;
  now.memory = nullptr;
  now.block = &block;
  now.known = 0;
  // Kernels often read their indices. Accesses to these variables are ignored if the compiler has placed them together.
  const auto [first, last] =
      std::minmax({reinterpret_cast<uintptr_t>(&threadIdx), reinterpret_cast<uintptr_t>(&blockIdx),
                   reinterpret_cast<uintptr_t>(&blockDim), reinterpret_cast<uintptr_t>(&gridDim)});
  now.indices = first;
  now.index_bytes = last - first == 3 * sizeof(dim3) ? 4 * sizeof(dim3) : 0;
}
void end_item() { now.active = false; }

void begin_thread(const KernelThread& thread) {
  now.self.block = thread.block;
  now.self.thread = static_cast<uint16_t>(thread.thread);
  now.self.grid_barriers = static_cast<uint8_t>(thread.grid_barriers);
  now.self.block_barriers = static_cast<uint16_t>(thread.block_barriers);
  now.self.warp_barriers = static_cast<uint16_t>(thread.warp_barriers);
}
void set_stacks(const void* begin, size_t bytes) {
  now.stacks = reinterpret_cast<uintptr_t>(begin);
  now.stack_bytes = bytes;
}

void note_read(const void* at, size_t bytes) { access(at, bytes, false, nullptr); }
void note_write(const void* at, size_t bytes) { access(at, bytes, true, nullptr); }
void note_atomic(const void* at, size_t bytes, const void* place) { access(at, bytes, true, place, true); }

}  // namespace emulated

// Functions that code compiled with -fsanitize=thread calls.
#define GODWIT_ACCESS(bytes)                                                                                        \
  extern "C" void __tsan_read##bytes(void* at) { emulated::access(at, bytes, false, __builtin_return_address(0)); } \
  extern "C" void __tsan_write##bytes(void* at) { emulated::access(at, bytes, true, __builtin_return_address(0)); }
GODWIT_ACCESS(1)
GODWIT_ACCESS(2)
GODWIT_ACCESS(4)
GODWIT_ACCESS(8)
GODWIT_ACCESS(16)
extern "C" void __tsan_read_range(void* at, size_t bytes) {
  emulated::access(at, bytes, false, __builtin_return_address(0));
}
extern "C" void __tsan_write_range(void* at, size_t bytes) {
  emulated::access(at, bytes, true, __builtin_return_address(0));
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_vptr_update(void*, void*) {}
extern "C" void __tsan_vptr_read(void*) {}
// Called by host code in the files of kernels.
extern "C" unsigned __tsan_atomic32_fetch_add(volatile void* at, unsigned value, int) {
  return __atomic_fetch_add(static_cast<volatile unsigned*>(at), value, __ATOMIC_SEQ_CST);
}
extern "C" unsigned __tsan_atomic32_fetch_sub(volatile void* at, unsigned value, int) {
  return __atomic_fetch_sub(static_cast<volatile unsigned*>(at), value, __ATOMIC_SEQ_CST);
}
extern "C" unsigned long __tsan_atomic64_load(const volatile void* at, int) {
  return __atomic_load_n(static_cast<const volatile unsigned long*>(at), __ATOMIC_SEQ_CST);
}
extern "C" unsigned char __tsan_atomic8_load(const volatile void* at, int) {
  return __atomic_load_n(static_cast<const volatile unsigned char*>(at), __ATOMIC_SEQ_CST);
}
