// ConvolutionNotices: reports convolutions that use a slower or less exact path than a native cuDNN kernel, and how the
// timing of engines went.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace godwit::apps {

// Reads convolution_paths() of the calling thread's context. Construct and use it on the thread that trains.
class ConvolutionNotices {
 public:
  // Notices since the last call: one per operation without cuDNN (the first five operations only), one for the first
  // operation computed in float32, one for the first filter gradient in bfloat16, and one each for ignored choices and
  // for choices that cannot be kept.
  std::vector<std::string> fresh();
  std::vector<std::string> summary() const;  // counts for the end of a run; empty if there were none

 private:
  size_t plain_ = 0;  // operations already reported by fresh()
  bool by_float32_ = false, rounded_ = false, damaged_ = false, untimed_ = false;
};

}  // namespace godwit::apps
