// ConvolutionNotices: tells which convolutions of a run take a slower way than cuDNN's own.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace godwit::apps {

// Of the thread that constructs it, trains and evaluates: of its context's convolution_paths().
class ConvolutionNotices {
 public:
  // What is new since the last call: one text for each operation without cuDNN, of which the fifth ends the list, and
  // one for the first operation by way of float32.
  std::vector<std::string> fresh();
  std::vector<std::string> summary() const;  // for the end of a run: how many there were; empty where none

 private:
  size_t plain_ = 0;  // that fresh() has told
  bool by_float32_ = false;
};

}  // namespace godwit::apps
