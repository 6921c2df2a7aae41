// Device: the place where a tensor is stored and its kernels run.
#pragma once
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>

struct CUstream_st;  // cudaStream_t points to this type

namespace godwit {

// The CPU or one GPU.
struct Device {
  enum class Kind : uint8_t { cpu, cuda };  // kinds of devices
  Kind kind = Kind::cpu;                    // CPU or GPU
  int index = 0;                            // GPU number among the GPUs visible to this process

  bool is_cuda() const { return kind == Kind::cuda; }  // whether it is a GPU
  bool operator==(const Device& other) const = default;
};

inline constexpr Device kCpu{};                                                  // the CPU
constexpr Device cuda_device(int index) { return {Device::Kind::cuda, index}; }  // GPU `index`

std::ostream& operator<<(std::ostream& out, Device device);  // "cpu", "cuda:1"

// Parses "cpu", "cuda:1", "cuda" or "auto". "cuda" is the GPU with the number `local_rank`. "auto" is that GPU, or the
// CPU if there is no usable GPU. Throws an Error that begins with `subject` for any other text.
Device parse_device(const std::string& text, const std::string& subject = "device", int local_rank = 0);

// Throws if `text` is not accepted by parse_device(), or if it names a GPU and no GPU is usable. The GPU's number is
// not checked, because it may depend on the rank.
void check_device(const std::string& text, const std::string& subject);

int cuda_devices();                // number of GPUs that this build, driver and process can use
std::string why_no_cuda();         // reason and remedy if there is no usable GPU, otherwise ""
void check_usable(Device device);  // throws an Error with reason and remedy if kernels cannot run on the device

// Tags that select the overload of a kernel. A thread launches all its GPU kernels on one stream.
struct Cpu {};
class CudaContext;  // stream, pool and library handles of one thread (engine/cuda/cuda_context.h)
struct Cuda {  // returned by cuda_of()
  CudaContext* context;  // handles of the calling thread
  CUstream_st* stream;   // stream of all launches of the thread
};

// The calling thread's CUDA tag. Throws unless the thread's context is on the given GPU.
Cuda cuda_of(Device device);

class Pool;
namespace detail {
std::shared_ptr<CudaContext> make_cuda_context(int index, bool high_priority);
std::shared_ptr<Pool> cuda_pool(Device device);  // the calling thread's pool
void make_current(const CudaContext& context);   // makes the GPU current for CUDA library calls of the calling thread
void synchronize(const CudaContext& context);
}  // namespace detail

}  // namespace godwit
