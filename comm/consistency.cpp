#include "comm/consistency.h"

#include <algorithm>
#include <bit>

#include "comm/failure.h"

namespace godwit {

void check_identical(Group& group, uint64_t value, const std::string& subject, const std::string& remedy) {
  check_identical(group, std::vector<uint64_t>{value}, [&](size_t) { return subject; }, remedy);
}

void check_identical(Group& group, const std::vector<uint64_t>& values,
                     const std::function<std::string(size_t)>& subject, const std::string& remedy) {
  const auto count = std::ssize(values);
  if (count == 0) return;
  const Tensor own({count}, DType::i64, kCpu), all({group.size() * count}, DType::i64, kCpu);
  std::transform(values.begin(), values.end(), own.data<int64_t>(),
                 [](uint64_t v) { return std::bit_cast<int64_t>(v); });
  group.all_gather(own, all, "agree");
  for (int64_t i = 0; i < count; ++i) {
    std::vector<int64_t> of_ranks;
    for (int rank = 0; rank < group.size(); ++rank) of_ranks.push_back(all.data<int64_t>()[rank * count + i]);
    const auto votes = [&](int64_t v) { return std::count(of_ranks.begin(), of_ranks.end(), v); };
    const int64_t common =
        *std::max_element(of_ranks.begin(), of_ranks.end(), [&](int64_t a, int64_t b) { return votes(a) < votes(b); });
    std::vector<int> others;
    for (int rank = 0; rank < group.size(); ++rank)
      if (of_ranks[static_cast<size_t>(rank)] != common) others.push_back(rank);
    if (!others.empty())
      fail("ranks disagree on ", subject(static_cast<size_t>(i)), ": ", rank_list(others),
           others.size() == 1 ? " differs" : " differ", " from the rest", remedy.empty() ? "" : "; ", remedy);
  }
}

}  // namespace godwit
