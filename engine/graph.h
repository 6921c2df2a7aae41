// CUDA graphs: what a thread asks of its GPU in a step, recorded once and then asked for by a few calls.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace godwit {

// Functions that ask the same of the GPU each time, as a pass over batches of one shape does. Under each key a function
// is called the first time, for libraries to make their choices; the second time what it asks is recorded, a graph for
// each part between calls of graph_break(), and done; from then on the graphs are launched and the function is not called.
//   CudaGraphCache graphs;
//   replica.begin_step(lr);
//   graphs.run({batch, length}, [&] { replica.backward(loss = loss_of(net, input)); });
//   replica.finish_step();
// Numbers that the host gives to kernels stay those of the recording, as do the places of tensors. What changes from
// one step to the next lies in tensors that keep their place: the GPU's, or the CPU's, which are copied anew each time.
// A function that reads a value of the GPU, or waits for it, is refused when it is recorded.
class CudaGraphCache {
 public:
  enum class How : uint8_t { eager, captured, replayed };

  // For the calling thread, whose context must be on a GPU. Functions under further keys than `most` are always called.
  explicit CudaGraphCache(size_t most = 64);
  ~CudaGraphCache();
  CudaGraphCache(const CudaGraphCache&) = delete;
  CudaGraphCache& operator=(const CudaGraphCache&) = delete;

  // Tensors that f makes lie in memory that all functions here share: what they hold is lost in the next run().
  How run(const std::vector<int64_t>& key, const std::function<void()>& f);
  bool recorded(const std::vector<int64_t>& key) const;  // the next run() replays it
  size_t recordings() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Within such a function, of the calling thread:

bool recording();  // what is asked of the GPU is recorded
// Where it is recorded: f, which may use the host's memory alone, is called in each replay before the kernels that are
// asked for here. Else nothing.
void on_replay(std::function<void()> f);
// Calls f between what was asked of the GPU before it and after it, then and in each replay.
void graph_break(std::function<void()> f);

}  // namespace godwit
