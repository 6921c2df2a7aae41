// GraphCapture: keeps what a thread asks of its stream, in parts: a CUDA graph, and what the host does before and after it.
#pragma once
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/cuda/cuda_context.h"

namespace godwit {

class GraphCapture {
 public:
  struct Call {
    std::function<void()> f;
    bool replays_only;
  };
  struct Part {
    std::vector<Call> before;  // without effect on the stream's work so far
    CudaGraph graph;
    std::function<void()> after;

    void launch(cudaStream_t stream, bool replays) const;  // with the calls before it
  };

  // From now on the thread's work is recorded; tensors come from `pool`.
  GraphCapture(CudaContext& context, std::shared_ptr<Pool> pool);
  ~GraphCapture();  // what was not finished is dropped
  GraphCapture(const GraphCapture&) = delete;
  GraphCapture& operator=(const GraphCapture&) = delete;

  void on_replay(std::function<void()> f) { part_.before.push_back({std::move(f), true}); }
  void graph_break(std::function<void()> f);
  // Of the CPU's memory to the GPU's, by way of memory there that the recording keeps.
  void copy(const Tensor& from, const Tensor& to);
  std::vector<Part> finish();

 private:
  void begin();
  void end();

  CudaContext& context_;
  std::shared_ptr<Pool> pool_, usual_pool_;
  Part part_;  // that is recorded
  std::vector<Part> parts_;
};

}  // namespace godwit
