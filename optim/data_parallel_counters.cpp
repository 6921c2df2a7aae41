// The numbers of a DataParallel that checkpoints contain.
#include <algorithm>
#include <cmath>
#include <limits>

#include "optim/data_parallel.h"

namespace godwit {

// Steps, skipped steps, number of the optimizer's counters, the optimizer's counters, the exchange's counters.
std::vector<double> DataParallel::counters() const {
  const std::vector<double> own = optimizer_->counters();
  std::vector<double> all{static_cast<double>(info_.step), static_cast<double>(skipped_),
                          static_cast<double>(own.size())};
  all.insert(all.end(), own.begin(), own.end());
  if (const Exchange* exchange = optimizer_->exchange_method()) {
    const std::vector<double> of_exchange = exchange->counters();
    all.insert(all.end(), of_exchange.begin(), of_exchange.end());
  }
  return all;
}

void DataParallel::restore(std::vector<double> counters) {
  for (double& number : counters) {
    // Earlier versions wrote infinity where the norm of a second moment had been 0.
    if (number == std::numeric_limits<double>::infinity()) number = std::numeric_limits<double>::max();
    check(std::isfinite(number), "checkpoint: a counter is not finite");
  }
  for (size_t i = 0; i < std::min<size_t>(counters.size(), 3); ++i)
    check(counters[i] < 0x1p53, "checkpoint: counter ", i, " is ", counters[i], ", expected a count");
  check(counters.size() >= 3 && counters[0] >= 0 && counters[1] >= 0 && counters[2] >= 0 &&
            3 + counters[2] <= static_cast<double>(counters.size()),
        "checkpoint: has ", counters.size(), " counters, which do not fit ", method_names());
  info_ = {std::llround(counters[0]), 0};
  skipped_ = std::llround(counters[1]);
  const auto end = counters.begin() + 3 + std::llround(counters[2]);
  optimizer_->restore({counters.begin() + 3, end});
  if (Exchange* exchange = optimizer_->exchange_method()) exchange->restore({end, counters.end()});
}

}  // namespace godwit
