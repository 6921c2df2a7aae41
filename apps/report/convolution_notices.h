// ConvolutionNotices: reports convolutions that use a slower or less exact path than a native cuDNN kernel, and the
// results of engine timing.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace godwit::apps {

// Reads convolution_paths() of the calling thread's context. Must be constructed and used on the thread that trains.
class ConvolutionNotices {
 public:
  // Returns the notices since the last call. There is one notice for each operation without cuDNN (only the first
  // five), one for the first operation computed in float32, and one for the first filter gradient in bfloat16. There is
  // also one notice each for ignored choices and for choices that cannot be recorded.
  std::vector<std::string> fresh();
  std::vector<std::string> summary() const;  // counts for the end of a run; empty if there is nothing to report

 private:
  size_t plain_ = 0;  // number of operations already reported by fresh()
  bool by_float32_ = false, rounded_ = false, damaged_ = false, untimed_ = false;
};

}  // namespace godwit::apps
