// Information about a rank's GPU, for reports.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace godwit {

// The implementations that the calling thread's convolutions use. An operation is a forward pass or one of the two
// gradients, for one shape. Each text describes an operation and gives cuDNN's reason.
struct ConvolutionPaths {
  int64_t operations = 0;               // number of operations so far
  std::vector<std::string> rounded;     // filter gradients that cuDNN computes only in bfloat16
  std::vector<std::string> by_float32;  // bfloat16 operations that cuDNN supports only in float32
  std::vector<std::string> plain;       // operations computed without cuDNN
  // Set only with Context::dnn_timing:
  int64_t timed = 0;    // number of operations with timed engines
  std::string damaged;  // path of the choice file and reason why choices in it were ignored; empty if none were
  std::string untimed;  // reason why engines are not timed: the choices cannot be recorded; empty otherwise
};

std::string gpu_name();    // "cuda:0, NVIDIA H200" for the calling thread's context; "" on the CPU
int64_t peak_gpu_bytes();  // peak bytes allocated on this GPU by all threads of the rank; 0 on the CPU
const ConvolutionPaths& convolution_paths();  // paths of the calling thread's context; empty on the CPU
// Number of shapes for which the calling thread's context has prepared a library call. 0 on the CPU.
int64_t library_choices();
// Sets a function that the calling thread's context calls before it prepares a library call for a new shape and before
// it captures a graph. Both may load kernels. Null removes the function that was set with the same `owner` (any
// address). The function of another owner stays. No effect on the CPU.
void before_loading(std::function<void()> f, const void* owner);
// CUDA priority of the calling thread's stream. Lower numbers run first. 0 on the CPU.
int stream_priority();

}  // namespace godwit
