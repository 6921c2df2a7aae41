// What one thread works with on a GPU: a stream, the memory that is reused in its order, handles of the libraries.
#pragma once
#include <cublasLt.h>
#include <cudnn.h>

#include <functional>
#include <map>
#include <memory>
#include <vector>

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
  const int multiprocessors;  // of the GPU
  const std::shared_ptr<const CudaStream> shared_stream;
  const CudaStream& stream = *shared_stream;
  std::shared_ptr<Pool> pool;     // within a run of CudaGraphCache, theirs
  GraphCapture* graph_capture = nullptr;  // while what is asked of the stream is recorded
  Staging staging;
  ConvolutionPaths convolutions;
  int64_t choices = 0;  // values that cached() made

  cublasLtHandle_t blas();  // made when first asked for
  cudnnHandle_t dnn();      // likewise; works on `stream`

  // What a library chose, or prepared, for a shape, kept: made by `make` when first asked for under the key.
  template <class T>
  T& cached(const std::vector<int64_t>& key, const std::function<T()>& make) {
    auto& slot = cache_[key];
    if (!slot) {
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

// A pool of a GPU's memory for the work of one stream.
std::shared_ptr<Pool> make_cuda_pool(int index, std::shared_ptr<const CudaStream> stream);

// What a library call may use meanwhile; freed in the stream's order, so at once after the call.
inline Tensor workspace(Cuda device, int64_t bytes) {
  return Tensor({bytes}, DType::u8, cuda_device(device.context->index));
}

}  // namespace godwit
