// CudaContext: the GPU resources of one thread: a stream, a stream-ordered memory pool, and library handles.
#pragma once
#include <cublasLt.h>
#include <cudnn.h>

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine/cuda/aborted_work.h"
#include "engine/cuda/handles.h"
#include "engine/cuda/staging.h"
#include "engine/gpu.h"
#include "engine/pool.h"
#include "engine/tensor.h"

namespace godwit {

class GraphCapture;  // engine/cuda/graph.h

class CudaContext {
 public:
  explicit CudaContext(int index, bool high_priority = false);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  const int index;
  const int multiprocessors;  // number of multiprocessors of the GPU
  const std::shared_ptr<const CudaStream> shared_stream;
  const CudaStream& stream = *shared_stream;
  const std::shared_ptr<Pool> usual_pool;
  std::shared_ptr<Pool> pool;             // usual_pool, or the cache's pool while CudaGraphCache::run() executes
  GraphCapture* graph_capture = nullptr;  // null unless the stream is being captured
  Staging staging;
  ConvolutionPaths convolutions;
  int64_t choices = 0;  // number of values created by cached()
  std::function<void()> before_loading;  // see engine/gpu.h
  const void* loading_owner = nullptr;   // owner of before_loading
  std::shared_ptr<AbortedWork> aborted = std::make_shared<AbortedWork>();  // shared by the rank's contexts on this GPU

  cublasLtHandle_t blas();  // created on first use
  cudnnHandle_t dnn();      // created on first use; uses `stream`
  void synchronize() const;  // blocks the host until the stream is idle; throws if work of the rank was aborted

  // Per-shape cache of library choices and prepared calls; calls `make` on a miss.
  template <class T>
  T& cached(const std::vector<int64_t>& key, const std::function<T()>& make) {
    auto& slot = cache_[key];
    if (!slot) {
      if (before_loading && !graph_capture) before_loading();
      slot = std::make_shared<T>(make());
      ++choices;
    }
    return *static_cast<T*>(slot.get());
  }

 private:
  cublasLtHandle_t blas_ = nullptr;
  cudnnHandle_t dnn_ = nullptr;
  std::map<std::vector<int64_t>, std::shared_ptr<void>> cache_;
};

// A pool of GPU memory for work on one stream.
std::shared_ptr<Pool> make_cuda_pool(int index, std::shared_ptr<const CudaStream> stream);

// Temporary memory for a library call. It may be released right after the call, because the pool reuses memory in
// stream order.
inline Tensor workspace(Cuda device, int64_t bytes) {
  return Tensor({bytes}, DType::u8, cuda_device(device.context->index));
}

}  // namespace godwit
