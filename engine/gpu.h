// What a rank says about the GPU it works on.
#pragma once
#include <cstdint>
#include <string>

namespace godwit {

std::string gpu_name();    // "cuda:0, NVIDIA H200", of the calling thread's context; "" on the CPU
int64_t peak_gpu_bytes();  // the most that its tensors, and those of the rank's other threads, took there; 0 on the CPU
int stream_priority();     // CUDA's, of the calling thread's stream: work of the lower number goes first; 0 on the CPU

}  // namespace godwit
