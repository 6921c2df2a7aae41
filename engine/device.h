// Device: where a tensor's memory is and its kernels run.
#pragma once
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>

struct CUstream_st;  // what CUDA's streams are pointers to

namespace godwit {

struct Device {
  enum class Kind : uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;  // of a GPU, among those that this process sees

  bool is_cuda() const { return kind == Kind::cuda; }
  bool operator==(const Device& other) const = default;
};

inline constexpr Device kCpu{};
constexpr Device cuda_device(int index) { return {Device::Kind::cuda, index}; }

std::ostream& operator<<(std::ostream& out, Device device);  // "cpu", "cuda:1"

// "cpu", "cuda:1", "cuda": the GPU numbered as this rank is among those of its machine, or "auto": that, or the CPU
// where there is none. Throws an Error that begins with `subject` on another text.
Device parse_device(const std::string& text, const std::string& subject = "device", int local_rank = 0);

int cuda_devices();                // GPUs that this build, its driver and this process can use
std::string why_no_cuda();         // a sentence when there are none, else ""
void check_usable(Device device);  // throws an Error that says why, and what to do, where kernels cannot run there

// Where a kernel runs: kernels are overloaded by these tags. All kernels of a thread on a GPU go to one stream.
struct Cpu {};
class CudaContext;  // of one thread: stream, pool, library handles (engine/cuda/cuda_context.h)
struct Cuda {
  CudaContext* context;
  CUstream_st* stream;
};

// Of the calling thread; throws unless its context is on that GPU.
Cuda cuda_of(Device device);

class Pool;
namespace detail {
std::shared_ptr<CudaContext> make_cuda_context(int index, bool high_priority);
std::shared_ptr<Pool> cuda_pool(Device device);  // of the calling thread
void make_current(const CudaContext& context);   // for calls of the CUDA libraries by the calling thread
void synchronize(const CudaContext& context);
}  // namespace detail

}  // namespace godwit
