// What a rank says about the GPU it works on.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace godwit {

// How the calling thread's convolutions reach the GPU. An operation is a forward pass or one of the two gradients, of
// one shape; the texts describe an operation and give cuDNN's reason.
struct ConvolutionPaths {
  int64_t operations = 0;
  std::vector<std::string> by_float32;  // bfloat16 operations that cuDNN computes only in float32
  std::vector<std::string> plain;       // operations without cuDNN
};

std::string gpu_name();    // "cuda:0, NVIDIA H200", of the calling thread's context; "" on the CPU
int64_t peak_gpu_bytes();  // the most that its tensors, and those of the rank's other threads, took there; 0 on the CPU
const ConvolutionPaths& convolution_paths();  // of the calling thread's context; empty on the CPU
int64_t library_choices();  // shapes for which the calling thread's context prepared a library call; 0 on the CPU
int stream_priority();     // CUDA's, of the calling thread's stream: work of the lower number goes first; 0 on the CPU

}  // namespace godwit
