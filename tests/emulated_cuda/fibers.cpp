// Runs the threads of kernels as fibers.
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "cuda_runtime.h"
#include "races.h"
#include "streams.h"

constinit thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulated {

void stop(const char* why) {
  std::fprintf(stderr, "emulated kernel, block %u of %u: %s\n", blockIdx.x, gridDim.x, why);
  std::abort();
}

namespace {

constexpr size_t kStack = 128 << 10;
constexpr unsigned kMostThreads = 1024, kMostGridBarriers = 255;

enum class State { ready, at_block_barrier, at_warp_barrier, at_grid_barrier, done };

struct Copy {
  void* to;
  const void* from;  // null: writes zeros
};

struct Fiber {
  jmp_buf place;
  State state;
  unsigned turn, block_barriers, warp_barriers;  // slot of the last exchange; numbers of barriers passed
  bool started = false;
  std::vector<Copy> copies;  // asynchronous, pending
};

// A block. Fibers are reused by later blocks, and switch with _setjmp and _longjmp, which unlike swapcontext make no
// system call.
struct Block {
  std::vector<Fiber> fibers = std::vector<Fiber>(kMostThreads);
  std::unique_ptr<std::byte[]> stacks = std::make_unique_for_overwrite<std::byte[]>(kMostThreads * kStack);
  std::byte slots[2][kMostThreads][kLaneBytes];
  jmp_buf scheduler;
  unsigned threads = 0, running = 0, grid_barriers = 0;  // grid_barriers: number of barriers passed
  const std::function<void()>* thread = nullptr;
};

constinit thread_local Block* running_block = nullptr;
Block& block() { return *running_block; }

// Returns to the scheduler until it resumes the running fiber.
void pause(Block& b) {
  if (_setjmp(b.fibers[b.running].place) == 0) _longjmp(b.scheduler, 1);
}

// A fiber's function: runs one thread of every block.
void run_fiber() {
  Block& b = block();
  for (;;) {
    (*b.thread)();
    b.fibers[b.running].state = State::done;
    pause(b);
  }
}

// Runs the fiber `b.running` until it pauses.
void resume(Block& b) {
  if (_setjmp(b.scheduler) != 0) return;
  Fiber& fiber = b.fibers[b.running];
  if (fiber.started) _longjmp(fiber.place, 1);
  fiber.started = true;
  ucontext_t start;
  getcontext(&start);
  start.uc_stack.ss_sp = b.stacks.get() + b.running * kStack;
  start.uc_stack.ss_size = kStack;
  makecontext(&start, run_fiber, 0);
  setcontext(&start);
}

void wait_at(State barrier) {
  Block& b = block();
  b.fibers[b.running].state = barrier;
  pause(b);
}

// Whether all threads of the block are in this state.
bool all_are(const Block& b, State state) {
  return std::all_of(b.fibers.begin(), b.fibers.begin() + b.threads, [=](const Fiber& f) { return f.state == state; });
}

// Releases all threads whose barrier is complete. Returns false on a deadlock: threads remain, but none can proceed.
bool release(Block& b) {
  const unsigned threads = b.threads;
  const std::span<Fiber> fibers(b.fibers.data(), threads);
  unsigned done = 0, waiting = 0;
  bool moved = false;
  for (const Fiber& f : fibers) done += f.state == State::done, waiting += f.state == State::at_block_barrier;
  for (unsigned warp = 0; warp < threads; warp += 32) {
    const unsigned end = std::min(threads, warp + 32);
    unsigned here = 0, gone = 0;
    for (unsigned t = warp; t < end; ++t)
      here += b.fibers[t].state == State::at_warp_barrier, gone += b.fibers[t].state == State::done;
    if (here > 0 && gone > 0) stop("a thread ended while others of its warp exchange values");
    if (here < end - warp) continue;
    for (unsigned t = warp; t < end; ++t) b.fibers[t].state = State::ready;
    moved = true;
  }
  if (waiting > 0 && waiting + done == threads) {
    for (Fiber& f : fibers)
      if (f.state == State::at_block_barrier) f.state = State::ready;
    moved = true;
  }
  return moved || done == threads;
}

// The order in which blocks and the threads of a block run: by index, or random with GODWIT_EMULATED_ORDER=SEED.
class Order {
 public:
  Order() : seed_(setting("GODWIT_EMULATED_ORDER", 0)), random_(seed_) {}
  // The numbers below `count`, in a new order if the order is random.
  const std::vector<unsigned>& next(std::vector<unsigned>& numbers, unsigned count) {
    if (numbers.size() != count) {
      numbers.resize(count);
      std::iota(numbers.begin(), numbers.end(), 0u);
    }
    if (seed_ != 0) std::shuffle(numbers.begin(), numbers.end(), random_);
    return numbers;
  }

 private:
  unsigned seed_;
  std::mt19937 random_;
};

void start_block(Block& b, unsigned threads, const std::function<void()>& thread) {
  b.thread = &thread;
  b.threads = threads;
  b.grid_barriers = 0;
  for (unsigned t = 0; t < threads; ++t) {
    Fiber& f = b.fibers[t];
    f.state = State::ready;
    f.turn = f.block_barriers = f.warp_barriers = 0;
  }
}

// Runs all threads of a block until they are done or wait for the grid. `numbers` holds their order.
void run_block(Block& b, Order& order, std::vector<unsigned>& numbers) {
  running_block = &b;
  set_stacks(b.stacks.get(), kMostThreads * kStack);
  while (!all_are(b, State::done) && !all_are(b, State::at_grid_barrier)) {
    bool moved = false;
    for (const unsigned t : order.next(numbers, b.threads)) {
      if (b.fibers[t].state != State::ready) continue;
      moved = true;
      b.running = t;
      threadIdx = dim3(t);
      begin_thread({blockIdx.x, t, b.grid_barriers, b.fibers[t].block_barriers, b.fibers[t].warp_barriers});
      resume(b);
    }
    if (!release(b) && !moved) stop("its threads wait at different barriers");
  }
}

}  // namespace

cudaError_t launch_error(dim3 grid, dim3 block, bool cooperative) {
  if (grid.x == 0 || block.x == 0 || block.x > kMostThreads || block.y * block.z * grid.y * grid.z != 1)
    return cudaErrorInvalidConfiguration;
  constexpr unsigned kResidentThreads = 1536;  // per multiprocessor, of the smallest GPU
  return cooperative && grid.x > kResidentThreads / block.x * multiprocessors() ? cudaErrorCooperativeLaunchTooLarge
                                                                                : cudaSuccess;
}

cudaError_t run_grid(dim3 grid, dim3 threads, const std::function<void()>& thread, bool cooperative) {
  if (const cudaError_t error = launch_error(grid, threads, cooperative); error != cudaSuccess) return error;
  thread_local std::vector<std::unique_ptr<Block>> kept;  // more than one only for cooperative kernels
  while (kept.size() < (cooperative ? grid.x : 1)) kept.push_back(std::make_unique<Block>());
  gridDim = grid;
  blockDim = threads;
  Order order;
  std::vector<unsigned> blocks, of_block;
  const auto run = [&](Block& b, unsigned i) {
    blockIdx = dim3(i);
    run_block(b, order, of_block);
  };
  if (!cooperative) {
    for (const unsigned i : order.next(blocks, grid.x)) {
      start_block(*kept[0], threads.x, thread);
      run(*kept[0], i);
      if (!all_are(*kept[0], State::done)) stop("a barrier of the grid needs a cooperative launch");
    }
    return cudaSuccess;
  }
  for (unsigned i = 0; i < grid.x; ++i) start_block(*kept[i], threads.x, thread);
  for (unsigned waiting = grid.x; waiting > 0;) {
    waiting = 0;
    for (const unsigned i : order.next(blocks, grid.x)) {
      run(*kept[i], i);
      waiting += all_are(*kept[i], State::at_grid_barrier);
    }
    for (unsigned i = 0; waiting > 0 && i < grid.x; ++i) {
      blockIdx = dim3(i);
      if (all_are(*kept[i], State::done)) stop("it ended while other blocks wait for the grid");
      if (++kept[i]->grid_barriers > kMostGridBarriers)
        stop("the race detector counts at most 255 barriers of the grid");
      for (unsigned t = 0; t < threads.x; ++t) kept[i]->fibers[t].state = State::ready;
    }
  }
  return cudaSuccess;
}

// A fiber that passes a barrier is resumed by run_block(), after the barrier was counted.
void block_barrier() {
  ++block().fibers[block().running].block_barriers;
  wait_at(State::at_block_barrier);
}
void grid_barrier() {
  ++block().fibers[block().running].block_barriers;
  wait_at(State::at_grid_barrier);
}
void warp_barrier() { wait_at(State::at_warp_barrier); }
void warp_memory_barrier() {
  ++block().fibers[block().running].warp_barriers;
  wait_at(State::at_warp_barrier);
}

void start_copy(void* to, const void* from) {
  if (from) note_read(from, 16);
  note_write(to, 16);
  std::memset(to, 0xFF, 16);
  block().fibers[block().running].copies.push_back({to, from});
}
void await_copies() {
  auto& copies = block().fibers[block().running].copies;
  for (const Copy& copy : copies) {
    if (copy.from) note_read(copy.from, 16);
    note_write(copy.to, 16);
    if (copy.from) std::memcpy(copy.to, copy.from, 16);
    else std::memset(copy.to, 0, 16);
  }
  copies.clear();
}

unsigned next_turn() { return block().fibers[block().running].turn ^= 1; }
std::byte* lane_slot(unsigned turn, unsigned lane) { return block().slots[turn][threadIdx.x / 32 * 32 + lane]; }

}  // namespace emulated
