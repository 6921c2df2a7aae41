// DeviceSum: a sum of device values over batches. The host reads the values only once, at the end.
#pragma once
#include <utility>
#include <vector>

#include "engine/tensor.h"

namespace godwit::apps {

class DeviceSum {
 public:
  void add(const Tensor& value, double weight = 1) { terms_.emplace_back(value, weight); }  // a single element
  void add(const std::vector<Tensor>& values) {
    for (const Tensor& value : values) add(value);
  }
  double sum() const {  // summed in the order of add(); waits for a GPU
    double sum = 0;
    for (const auto& [value, weight] : terms_) sum += weight * value.item();
    return sum;
  }

 private:
  std::vector<std::pair<Tensor, double>> terms_;
};

}  // namespace godwit::apps
