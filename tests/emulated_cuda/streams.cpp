#include "streams.h"

#include <execinfo.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <random>
#include <set>
#include <utility>

#include "races.h"

namespace emulated {
namespace {

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Stream*> streams;
  std::vector<unsigned> positions;  // [stream number] -> position of its last item
  std::vector<unsigned> unused;     // stream numbers
  Clock synchronized;               // work that the host has waited for
  unsigned seed = 0;                // 0: work runs as soon as it is queued
  std::mt19937 random;
  std::set<std::pair<int, const void*>> loaded;  // kernels of devices

  unsigned below(unsigned count) { return static_cast<unsigned>(random() % count); }
  // Whether to run one more item than necessary. One seed of three runs items as late as possible.
  bool hurry() { return below(4) < seed % 3; }
};

State& state() {
  static State* const all = new State;  // never destroyed: threads may outlive it
  return *all;
}

using Lock = std::unique_lock<std::mutex>;

Lock locked() {
  State& s = state();
  Lock lock(s.mutex);
  const unsigned seed = setting("GODWIT_EMULATED_STREAMS", 0);
  if (seed != s.seed) s.random.seed(s.seed = seed);
  return lock;
}

void join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

bool waits(const Stream& stream) {
  const Item& first = stream.queue.front();
  return first.wait && !first.wait->done;
}
bool runnable(const Stream& stream) {
  if (stream.queue.empty() || waits(stream)) return false;
  const Item& first = stream.queue.front();
  if (first.meeting) {
    join(*first.meeting, stream.clock);
    join(*first.meeting, first.synchronized);
  }
  return !first.ready || first.ready();
}

void finish(Mark& mark, const Stream& stream) {
  mark.done = true;
  mark.clock = stream.clock;
  mark.time = stream.time;
  mark.when = std::chrono::steady_clock::now();
}

void run_first(Stream& stream) {
  State& s = state();
  const Item item = std::move(stream.queue.front());
  stream.queue.pop_front();
  join(stream.clock, item.synchronized);
  if (item.wait) join(stream.clock, item.wait->clock);
  if (item.meeting) join(stream.clock, *item.meeting);
  if (stream.clock.size() <= stream.number) stream.clock.resize(stream.number + 1);
  stream.clock[stream.number] = ++s.positions[stream.number];
  if (item.run) {
    if (s.seed != 0) begin_item(item, stream.number, stream.clock);
    if (const cudaError_t error = item.run(); stream.error == cudaSuccess) stream.error = error;
    end_item();
  }
  if (item.meeting) join(*item.meeting, stream.clock);
  if (item.mark) finish(*item.mark, stream);
  s.changed.notify_all();
}

// Runs one item of any stream. Returns false if none can run.
bool run_any() {
  std::vector<Stream*> able;
  for (Stream* const stream : state().streams)
    if (runnable(*stream)) able.push_back(stream);
  if (able.empty()) return false;
  run_first(*able[state().below(static_cast<unsigned>(able.size()))]);
  return true;
}

// Runs an item that the first one of `wanted` needs, or any if a stream waits for other ranks.
bool run_for(Stream* wanted) {
  while (!wanted->queue.empty() && waits(*wanted)) wanted = wanted->queue.front().wait->stream;
  if (!runnable(*wanted)) return run_any();
  run_first(*wanted);
  return true;
}

void run_until_done(const Mark& mark, Lock& lock) {
  State& s = state();
  while (!mark.done) {
    while (s.hurry() && run_any()) continue;
    if (!mark.done && !run_for(mark.stream)) s.changed.wait(lock);
  }
  join(s.synchronized, mark.clock);
}

std::shared_ptr<Mark> enqueue_mark(Stream& stream) {
  auto mark = std::make_shared<Mark>(Mark{&stream});
  if (stream.queue.empty()) finish(*mark, stream);
  else stream.queue.push_back({.mark = mark});
  return mark;
}

// A copy to the host may be late: until then, the host reads NaN. Skipped if queued work still reads the old values.
void poison(const Item& item) {
  const auto* const begin = item.host.data();
  const auto* const end = begin + item.host.size();
  for (const Stream* const stream : state().streams)
    for (const Item& other : stream->queue)
      if (other.host.data() < end && begin < other.host.data() + other.host.size()) return;
  std::fill(item.host.begin(), item.host.end(), std::byte{0xFF});
}

}  // namespace

unsigned setting(const char* name, unsigned otherwise) {
  const char* const text = std::getenv(name);
  return text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : otherwise;
}

void open(Stream& stream) {
  const Lock lock = locked();
  State& s = state();
  if (s.unused.empty()) {
    s.unused.push_back(static_cast<unsigned>(s.positions.size()));
    s.positions.push_back(0);
  }
  stream.number = s.unused.back();
  s.unused.pop_back();
  s.streams.push_back(&stream);
}

void close(Stream& stream) {
  Lock lock = locked();
  State& s = state();
  run_until_done(*enqueue_mark(stream), lock);
  std::erase(s.streams, &stream);
  s.unused.push_back(stream.number);
}

cudaError_t push(Stream& stream, Item item) {
  Lock lock = locked();
  State& s = state();
  if (s.seed == 0 && stream.queue.empty() && !item.ready && (!item.wait || item.wait->done)) {
    lock.unlock();
    return item.run ? item.run() : cudaSuccess;
  }
  item.synchronized = s.synchronized;
  if (s.seed != 0) backtrace(item.callers.data(), static_cast<int>(item.callers.size()));
  if (item.to_host) poison(item);
  stream.queue.push_back(std::move(item));
  s.changed.notify_all();
  while ((s.seed == 0 || s.hurry()) && run_any()) continue;
  return cudaSuccess;
}

std::shared_ptr<Mark> record(Stream& stream) {
  const Lock lock = locked();
  return enqueue_mark(stream);
}

void await(const Mark& mark) {
  Lock lock = locked();
  run_until_done(mark, lock);
}

cudaError_t await(Stream& stream) {
  Lock lock = locked();
  run_until_done(*enqueue_mark(stream), lock);
  return std::exchange(stream.error, cudaSuccess);
}

void await_device(int device) {
  Lock lock = locked();
  std::vector<std::shared_ptr<Mark>> marks;
  for (Stream* const stream : state().streams)
    if (stream->device == device) marks.push_back(enqueue_mark(*stream));
  for (const auto& mark : marks) run_until_done(*mark, lock);
}

cudaError_t query(Stream& stream) {
  const Lock lock = locked();
  State& s = state();
  if (!stream.queue.empty()) run_for(&stream);
  if (!stream.queue.empty()) return cudaErrorNotReady;
  join(s.synchronized, stream.clock);
  return std::exchange(stream.error, cudaSuccess);
}

bool query(const Mark& mark) {
  const Lock lock = locked();
  return mark.done;
}

void progress() {
  const Lock lock = locked();
  run_any();
}

void load(const void* kernel, int device) {
  Lock lock = locked();
  State& s = state();
  if (!s.loaded.emplace(device, kernel).second) return;
  const auto limit = std::chrono::steady_clock::now() + loading_limit;
  const auto spins = [device](Stream* stream) {
    return stream->device == device && !stream->queue.empty() && stream->queue.front().ready && !waits(*stream) &&
           !runnable(*stream);
  };
  while (std::any_of(s.streams.begin(), s.streams.end(), spins))
    if (!run_any() && s.changed.wait_until(lock, limit) == std::cv_status::timeout)
      stop("it cannot be loaded while a collective waits for other ranks");
}

void wake() {
  const Lock lock = locked();
  while (state().seed == 0 && run_any()) continue;
  state().changed.notify_all();
}

}  // namespace emulated
