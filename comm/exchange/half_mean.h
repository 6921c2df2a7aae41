// Means with 16 bits per value on the wire.
#pragma once
#include "comm/buckets/bucket.h"
#include "comm/group.h"

namespace godwit {

// Throws if the bucket's padded size is not a multiple of `ranks`. The Error message begins with `exchange`.
void check_divides(const Bucket& bucket, int ranks, const char* exchange);

// Collective. Returns this rank's part of (Σ x over the group's ranks) / divisor. Every rank rounds its values to
// `wire` and sends part j to rank j. The owner of a part adds in float32 and in rank order, divides, and rounds once.
// `exchange`: name in error messages.
Tensor half_mean_part(Group& group, const Tensor& x, DType wire, int divisor, const char* exchange, const char* phase);

// Collective: x ← (Σ x over the group's ranks) / divisor. `to_owners` and `to_all` are the names of the phases.
void half_mean(Group& group, const Tensor& x, DType wire, int divisor, const char* exchange, const char* to_owners,
               const char* to_all);

}  // namespace godwit
