// CudaGraphCache: captures the GPU work of a step as CUDA graphs and replays it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace godwit {

class CudaContext;
class Pool;

// A cache of CUDA graphs, keyed by input shapes. The first run() of a key calls the function eagerly, so that libraries
// can choose algorithms. The second run() captures the function's GPU work and executes it. Each part between calls of
// graph_break() becomes one graph. Later runs launch the graphs without calling the function.
//   CudaGraphCache graphs;
//   replica.begin_step(lr);
//   graphs.run({batch, length}, [&] { replica.backward(loss = loss_of(net, input)); });
//   replica.finish_step();
// A replay repeats the captured kernel arguments and tensor addresses. Values that change between steps must therefore
// be in tensors with fixed addresses. These are GPU tensors, or CPU tensors that each replay copies to the GPU again.
// Capture throws an Error if the function reads a GPU value on the host or waits for the GPU.
class CudaGraphCache {
 public:
  enum class How : uint8_t { eager, captured, replayed };  // how run() executed the function

  // The cache is for the calling thread, whose context must be on a GPU. At most `most` keys are captured; other keys
  // always run eagerly.
  explicit CudaGraphCache(size_t most = 64);
  ~CudaGraphCache();
  CudaGraphCache(const CudaGraphCache&) = delete;
  CudaGraphCache& operator=(const CudaGraphCache&) = delete;

  // Runs f eagerly, captures it, or replays it. Tensors that f creates use one memory pool, which all captured
  // functions share. The next run() overwrites their contents. Tensors that outlive the run need a UsualPool.
  How run(const std::vector<int64_t>& key, const std::function<void()>& f);
  bool captured(const std::vector<int64_t>& key) const;  // true if the next run() replays this key
  size_t captures() const;                               // number of captured keys

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// While the object exists, the calling thread allocates GPU tensors from its usual pool, also within
// CudaGraphCache::run(), so replays do not overwrite them. For tables that later runs read. No effect on the CPU.
class UsualPool {
 public:
  UsualPool();
  ~UsualPool();
  UsualPool(const UsualPool&) = delete;
  UsualPool& operator=(const UsualPool&) = delete;

 private:
  std::shared_ptr<CudaContext> context_;  // null on the CPU
  std::shared_ptr<Pool> before_;
};

// The functions below act on the calling thread's capture.

bool capturing();  // true while the thread's GPU work is being captured
// During capture, registers f: each replay calls f before it launches the current graph. f must not wait for the GPU.
// Work that f queues precedes this graph. Outside capture, there is no effect.
void on_replay(std::function<void()> f);
// During capture, ends the current graph, calls f now and in each replay, and starts the next graph. Outside capture,
// calls f.
void graph_break(std::function<void()> f);

}  // namespace godwit
