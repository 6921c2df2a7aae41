#include "comm/agree.h"

#include <algorithm>
#include <bit>

namespace godwit {

void check_same(Group& group, uint64_t value, const std::string& what) {
  const Tensor own = Tensor::of<int64_t>({std::bit_cast<int64_t>(value)}, {1});
  const Tensor all({group.size()}, DType::i64);
  group.all_gather(own, all, "agree");
  const std::vector<int64_t> values = all.to_vector<int64_t>();
  const auto votes = [&](int64_t v) { return std::count(values.begin(), values.end(), v); };
  const int64_t common =
      *std::max_element(values.begin(), values.end(), [&](int64_t a, int64_t b) { return votes(a) < votes(b); });
  std::string others;
  for (size_t rank = 0; rank < values.size(); ++rank)
    if (values[rank] != common) others += (others.empty() ? "" : ", ") + std::to_string(rank);
  check(others.empty(), what, " differs between ranks: not the same on ", others, " as on the other ranks of ",
        group.size());
}

}  // namespace godwit
