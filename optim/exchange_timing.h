// Chooses the size of buckets from measurements. Small buckets leave less to exchange after the backward pass, but
// every bucket has a fixed cost.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "optim/data_parallel.h"

namespace godwit {

// Time of a bucket's exchange and update: s_per_bucket + s_per_byte · bytes of its parameters.
struct BucketCost {
  double s_per_bucket, s_per_byte;  // seconds
};

// Collective. Times the training of scratch parameters of 0.25 and 8 MiB with the optimizer and exchange of `options`.
// Returns the mean over the ranks. The byte counts of `comm` are unchanged.
BucketCost measure_bucket_cost(Communicator& comm, const DataParallelOptions& options);

// Time at which the gradient of a parameter is complete.
struct GradientTime {
  int64_t bytes;   // size of the parameter
  double ready_s;  // seconds after the beginning of the backward pass
};

// Collective. Runs `loss` and its backward pass twice and times the second backward pass. Returns the mean over the
// ranks for each Var, in order of registration. Clears the gradients. The parameters must not be bound to buckets.
std::vector<GradientTime> measure_gradient_times(const std::vector<Parameter>& parameters, Communicator& comm,
                                                 const std::function<Var()>& loss);

// Predicted seconds from the beginning of the backward pass to the end of the last update, with buckets of these sizes.
// `overlaps`: exchanges may begin before the last gradient is complete.
double predicted_seconds(const std::vector<GradientTime>& gradients, const BucketCost& cost, bool overlaps,
                         const BucketOptions& sizes);

// A bucket size, and the measurements behind it for the user.
struct BucketSize {
  int64_t mib;         // size of the buckets after the first one
  double seconds;      // predicted seconds with this size
  std::string reason;  // one line without the size
};
// Returns the size with the shortest predicted time among 1, 2, 4, … 64 MiB and the default of 25 MiB. Returns the
// default if its predicted time is at most 1 % longer. sizes.bytes is not read.
BucketSize best_bucket_size(const std::vector<GradientTime>& gradients, const BucketCost& cost, bool overlaps,
                            const BucketOptions& sizes = {});

// Predicted seconds if an exchange sends values of this type.
struct WireTime {
  std::string wire;  // value of the exchange's option `wire`
  double seconds;    // see predicted_seconds()
};
// A type of values on the network, and the predictions behind it for the user.
struct BestWire {
  size_t index;        // index of the type in `times`
  std::string reason;  // one line without the type
};
// Returns the type with the shortest predicted time if this time is at least 5 % shorter than that of the first type.
// Otherwise returns the first type. Requires two or more types.
BestWire best_wire(const std::vector<WireTime>& times);

}  // namespace godwit
