#include "engine/gpu.h"

namespace godwit {

std::string gpu_name() { return ""; }
int64_t peak_gpu_bytes() { return 0; }
const ConvolutionPaths& convolution_paths() {
  static const ConvolutionPaths none;
  return none;
}
int64_t library_choices() { return 0; }
void before_loading(std::function<void()>, const void*) {}
int stream_priority() { return 0; }

}  // namespace godwit
