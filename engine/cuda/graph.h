// GraphCapture: captures a thread's stream as one or more parts. Each part is a CUDA graph with host calls before and
// after it.
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
    std::vector<Call> before;  // must not affect work that is already queued on the stream
    CudaGraph graph;
    std::function<void()> after;

    void launch(cudaStream_t stream, bool replays) const;  // calls `before`, then launches the graph
  };

  // Starts capturing the thread's work. Tensors are allocated from `pool` until finish().
  GraphCapture(CudaContext& context, std::shared_ptr<Pool> pool);
  ~GraphCapture();  // drops an unfinished capture
  GraphCapture(const GraphCapture&) = delete;
  GraphCapture& operator=(const GraphCapture&) = delete;

  void on_replay(std::function<void()> f) { part_.before.push_back({std::move(f), true}); }
  void graph_break(std::function<void()> f);
  // Copies CPU memory to GPU memory through a GPU buffer that the capture keeps alive.
  void copy(const Tensor& from, const Tensor& to);
  std::vector<Part> finish();

 private:
  void begin();
  void end();

  CudaContext& context_;
  std::shared_ptr<Pool> pool_, usual_pool_;
  Part part_;  // the part being captured
  std::vector<Part> parts_;
};

}  // namespace godwit
