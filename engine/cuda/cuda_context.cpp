#include "engine/cuda/cuda_context.h"

#include <cuda_runtime_api.h>

#include "engine/context.h"
#include "engine/cuda/rank_pools.h"
#include "engine/cuda/requirements.h"

namespace godwit {
namespace {

class CudaMemory : public MemorySource {
 public:
  CudaMemory(int index, std::shared_ptr<const CudaStream> stream) : index_(index), stream_(std::move(stream)) {}
  std::byte* allocate(int64_t bytes) override {
    cuda_check(cudaSetDevice(index_), "cudaSetDevice");
    void* data = nullptr;
    const cudaError_t status = beside_captures([&] { return cudaMalloc(&data, static_cast<size_t>(bytes)); });
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears the error, so that later calls do not report it
      return nullptr;
    }
    cuda_check(status, "cudaMalloc");
    return static_cast<std::byte*>(data);
  }
  // May be called from any thread; restores the thread's current GPU. Waits for the stream, because queued work may
  // still use the memory. Waiting is not possible while the stream is captured.
  bool release(std::byte* data) override {
    if (captured()) return false;
    int before = index_;
    cudaGetDevice(&before);
    cudaSetDevice(index_);
    const cudaError_t status = beside_captures([&] {
      const cudaError_t waited = cudaStreamSynchronize(stream_->get());
      return waited == cudaSuccess ? cudaFree(data) : waited;
    });
    cudaSetDevice(before);
    return status == cudaSuccess;
  }
  // With GODWIT_POISON, fills the memory with NaN in stream order. Not during a capture: replays would repeat the fill.
  void recycle(std::byte* data, int64_t bytes) override {
    if (!poison_ || bytes == 0 || captured()) return;
    int before = index_;
    cudaGetDevice(&before);
    cudaSetDevice(index_);
    cudaMemsetAsync(data, kPoison, static_cast<size_t>(bytes), stream_->get());
    cudaSetDevice(before);
  }
  Device device() const override { return cuda_device(index_); }
  std::string state() const override {
    size_t free_bytes = 0, total = 0;
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) return "";
    return detail::concat(", ", free_bytes, " free of ", total, " on ", device(),
                          captured() ? "; cached memory cannot be freed while a CUDA graph is captured; use "
                                       "--set cuda_graph=false"
                                     : "");
  }

 private:
  // Calls f in relaxed capture mode, for calls that are not part of the calling thread's capture.
  template <class F>
  static cudaError_t beside_captures(F&& f) {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cuda_check(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    const cudaError_t status = f();
    cudaThreadExchangeStreamCaptureMode(&mode);
    return status;
  }

  bool captured() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream_->get(), &status) != cudaSuccess || status != cudaStreamCaptureStatusNone;
  }

  const int index_;
  const std::shared_ptr<const CudaStream> stream_;
  const bool poison_ = poison_released_memory();
};

// CUDA's device count, queried once; it does not change while the process lives.
struct Found {
  int count = 0;
  std::string why;
};

Found find_devices() {
  Found found;
  const cudaError_t status = cudaGetDeviceCount(&found.count);
  if (status == cudaSuccess && found.count > 0) return found;
  found.count = 0;
  cudaGetLastError();
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const auto version = [](int number) { return detail::concat(number / 1000, ".", number % 1000 / 10); };
  if (driver == 0) {
    found.why = "no NVIDIA driver is loaded on this machine; use --device cpu";
  } else if (status == cudaErrorInsufficientDriver) {
    found.why = detail::concat("the NVIDIA driver supports CUDA up to ", version(driver), ", but this build uses CUDA ",
                               version(runtime), "; update the driver, or build with an older toolkit");
  } else {
    found.why = detail::concat("no GPU is visible to this process (", cudaGetErrorString(status),
                               "); check nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu");
  }
  return found;
}

const Found& found_devices() {
  static const Found found = find_devices();
  return found;
}

int multiprocessors_of(int index) {
  open_gpu(index);
  int count = 0;
  cuda_check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, index), "cudaDeviceGetAttribute");
  return count;
}

}  // namespace

void cuda_check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) [[likely]]
    return;
  throw Error(detail::concat(call, " failed at ", file, ":", line, ": ", cudaGetErrorString(status), " (",
                             cudaGetErrorName(status), ")", status == cudaErrorMemoryAllocation ? memory_advice() : ""),
              file, line);
}

void cuda_check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  throw Error(
      detail::concat(call, " failed at ", file, ":", line, ": ", cublasLtGetStatusString(status), " (",
                     cublasLtGetStatusName(status), ")", status == CUBLAS_STATUS_ALLOC_FAILED ? memory_advice() : ""),
      file, line);
}

void cuda_check(cudnnStatus_t status, const char* call, const char* file, int line) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  char reason[512] = "";
  cudnnGetLastErrorString(reason, sizeof(reason));
  throw Error(detail::concat(call, " failed at ", file, ":", line, ": ", cudnnGetErrorString(status), " (", reason, ")",
                             status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ? memory_advice() : ""),
              file, line);
}

int cuda_devices() { return found_devices().count; }
std::string why_no_cuda() { return found_devices().why; }

std::shared_ptr<Pool> make_cuda_pool(int index, std::shared_ptr<const CudaStream> stream) {
  return std::make_shared<Pool>(std::make_unique<CudaMemory>(index, std::move(stream)));
}

CudaContext::CudaContext(int device_index, bool high_priority)
    : index(device_index),
      multiprocessors(multiprocessors_of(device_index)),  // also makes the GPU current
      shared_stream(std::make_shared<CudaStream>(high_priority)),
      usual_pool(make_cuda_pool(device_index, shared_stream)),
      pool(usual_pool) {}

CudaContext::~CudaContext() {
  cudaStreamSynchronize(stream.get());
  cache_.clear();
  if (blas_) cublasLtDestroy(blas_);
  if (dnn_) cudnnDestroy(dnn_);
}

// Reports an abort first: wrong values of aborted work may have made later work fail.
void CudaContext::synchronize() const {
  const cudaError_t status = cudaStreamSynchronize(stream.get());
  aborted->check();
  cuda_check(status, "cudaStreamSynchronize");
}

cublasLtHandle_t CudaContext::blas() {
  if (!blas_) cuda_check(cublasLtCreate(&blas_), "cublasLtCreate");
  return blas_;
}

cudnnHandle_t CudaContext::dnn() {
  if (!dnn_) {
    check_version("cuDNN", static_cast<int64_t>(cudnnGetVersion()), CUDNN_VERSION);
    cuda_check(cudnnCreate(&dnn_), "cudnnCreate");
    cuda_check(cudnnSetStream(dnn_, stream.get()), "cudnnSetStream");
  }
  return dnn_;
}

Cuda cuda_of(Device device) {
  const Context& here = context();
  check(here.cuda && here.cuda->index == device.index, "a tensor on ", device,
        " was used by a thread whose context is on ", here.device, "; create the context with context_on(device)");
  return {here.cuda.get(), here.cuda->stream.get()};
}

namespace detail {

std::shared_ptr<CudaContext> make_cuda_context(int index, bool high_priority) {
  auto made = std::make_shared<CudaContext>(index, high_priority);
  if (const auto& mine = context().cuda) make_current(*mine);
  join_rank(*made);
  return made;
}
std::shared_ptr<Pool> cuda_pool(Device device) { return cuda_of(device).context->pool; }
void make_current(const CudaContext& context) { cuda_check(cudaSetDevice(context.index), "cudaSetDevice"); }
void synchronize(const CudaContext& context) { context.synchronize(); }

}  // namespace detail

}  // namespace godwit
