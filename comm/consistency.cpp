#include "comm/consistency.h"

#include <algorithm>
#include <bit>

#include "comm/failure.h"
#include "comm/host_tensor.h"

namespace godwit {

void check_identical(Group& group, uint64_t value, const std::string& what) {
  const Tensor all({group.size()}, DType::i64, kCpu);
  group.all_gather(cpu_tensor<int64_t>({std::bit_cast<int64_t>(value)}), all, "agree");
  const std::vector<int64_t> values = all.to_vector<int64_t>();
  const auto votes = [&](int64_t v) { return std::count(values.begin(), values.end(), v); };
  const int64_t common =
      *std::max_element(values.begin(), values.end(), [&](int64_t a, int64_t b) { return votes(a) < votes(b); });
  std::vector<int> others;
  for (int rank = 0; rank < group.size(); ++rank)
    if (values[static_cast<size_t>(rank)] != common) others.push_back(rank);
  if (!others.empty())
    fail("ranks disagree on ", what, ": ", rank_list(others), others.size() == 1 ? " differs" : " differ",
         " from the rest");
}

}  // namespace godwit
