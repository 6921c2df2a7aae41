// Trimmed mean (Yin et al. 2018): the mean of each gradient value over the ranks, without the `trim` largest and the
// `trim` smallest values. A few ranks with wrong gradients therefore have a limited effect.
#include "quadrants.h"

using namespace godwit;

struct TrimmedMeanOptions {
  int64_t trim = 1;
  void describe(OptionList& list) { list.add("trim", trim, "values dropped at each end", kNotNegative); }
};

class TrimmedMean : public Exchange {
 public:
  TrimmedMean(const TrimmedMeanOptions& options, const Communicator& comm) : trim_(options.trim) {
    check(2 * trim_ < comm.topology.world(), "trimmed_mean: trim ", trim_, " leaves no value of ",
          comm.topology.world(), " ranks; lower exchange.trim");
  }

  // Every rank receives all gradients and computes the same mean.
  void mean(Bucket& bucket, Communicator& comm, int64_t) override {
    const int64_t ranks = comm.world->size(), n = bucket.padded_numel();
    const Tensor all({ranks * n});
    comm.world->all_gather(bucket.grad, all, "trimmed_mean/all_gather");
    const float* from = all.data<float>();
    std::vector<float> values(static_cast<size_t>(ranks));
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t rank = 0; rank < ranks; ++rank) values[static_cast<size_t>(rank)] = from[rank * n + i];
      std::sort(values.begin(), values.end());
      float sum = 0;
      for (int64_t rank = trim_; rank < ranks - trim_; ++rank) sum += values[static_cast<size_t>(rank)];
      bucket.grad.data<float>()[i] = sum / static_cast<float>(ranks - 2 * trim_);
    }
  }

 private:
  int64_t trim_;
};

const ExchangeMethod& trimmed_mean_method() {
  static const ExchangeMethod method{.name = "trimmed_mean", .help = "mean without the extreme values of each gradient",
      .paper = "Yin et al. 2018, Byzantine-Robust Distributed Learning",
      .bytes = "4 bytes per parameter to each other rank", .defaults = TrimmedMeanOptions(),
      .make = [](const AnyOptions& options, const ExchangeInputs& inputs) -> std::unique_ptr<Exchange> {
        return std::make_unique<TrimmedMean>(options.as<TrimmedMeanOptions>(), inputs.comm);
      }};
  return method;
}

int main() {
  methods<ExchangeMethod>().push_back(&trimmed_mean_method());  // in Godwit's sources: comm/exchange/methods.cpp
  quadrants::train("trimmed mean", {.optimizer = Sgdm::Options{.lr = 0.1}, .exchange = TrimmedMeanOptions{.trim = 1}});
}
