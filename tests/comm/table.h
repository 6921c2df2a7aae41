// A random table that every rank can compute. Row r contains the values of rank r.
#pragma once
#include <vector>

#include "engine/philox.h"
#include "engine/tensor.h"

namespace godwit::test {

template <class T>
std::vector<T> random_row(uint64_t seed, int rank, int64_t n) {
  RandomStream random(seed, Purpose::test, static_cast<uint32_t>(rank));
  std::vector<T> row(static_cast<size_t>(n));
  for (T& value : row) value = static_cast<T>(random.normal());
  return row;
}

template <class T>
Tensor random_tensor(uint64_t seed, int rank, int64_t n) {
  return Tensor::of(random_row<T>(seed, rank, n), {n});
}

// Sums rows 0…ranks−1 elementwise in rank order, in T. Divides once if `mean`.
template <class T>
std::vector<T> rank_order_sum(uint64_t seed, int ranks, int64_t n, bool mean) {
  std::vector<T> sum = random_row<T>(seed, 0, n);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<T> row = random_row<T>(seed, rank, n);
    for (size_t i = 0; i < row.size(); ++i) sum[i] += row[i];
  }
  if (mean)
    for (T& value : sum) value /= static_cast<T>(ranks);
  return sum;
}

}  // namespace godwit::test
