#include "engine/random_words.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <vector>

#include "engine/philox.h"

namespace godwit {
namespace random_words_test {

TEST(RandomWords, EqualTheWordOfEachElement) {
  const std::vector<int64_t> begins{0, 1, 2, 3, 1021, (int64_t{1} << 33) - 5};  // the last one is beyond 2³¹ counters
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (const int64_t begin : begins)
      for (const int64_t count : {0, 1, 2, 7, 31, 32, 33, 1000}) {
        std::vector<uint32_t> buffer(static_cast<size_t>(count + kRandomSlack) + 1, 0x5eed);
        const void* ahead = begin % 2 == 0 ? buffer.data() : nullptr;
        const uint32_t* words = random_words({9, 1, 6, 8}, begin, count, buffer.data(), ahead);
        for (int64_t k = 0; k < count; ++k)
          ASSERT_EQ(words[k], random_word(9, begin + k, 1, Purpose::dropout, 8))
              << hwy::TargetName(target) << begin + k;
        EXPECT_EQ(buffer.back(), 0x5eedu) << "wrote past the end";
      }
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace random_words_test
}  // namespace godwit
