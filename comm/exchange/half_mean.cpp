#include "comm/exchange/half_mean.h"

#include "comm/compress/wire/half.h"

namespace godwit {

void check_divides(const Bucket& bucket, int ranks, const char* exchange) {
  check(bucket.padded_numel() % ranks == 0, exchange, ": bucket ", bucket.index, " has ", bucket.padded_numel(),
        " elements, not a multiple of ", ranks, " ranks; set BucketOptions::alignment to such a multiple");
}

Tensor half_mean_part(Group& group, const Tensor& x, DType wire, int divisor, const char* exchange, const char* phase) {
  const Tensor all = to_half(x, wire, exchange), parts(x.shape(), wire), own({x.numel() / group.size()}, wire);
  group.all_to_all(all, parts, phase);
  mean_of_halves(parts, divisor, own);
  return own;
}

void half_mean(Group& group, const Tensor& x, DType wire, int divisor, const char* exchange, const char* to_owners,
               const char* to_all) {
  const Tensor own = half_mean_part(group, x, wire, divisor, exchange, to_owners), all(x.shape(), wire);
  group.all_gather(own, all, to_all);
  from_half(all, x);
}

}  // namespace godwit
