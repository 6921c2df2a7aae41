#include "data/text/word_cache.h"

#include <gtest/gtest.h>

#include <string>

namespace godwit::data {
namespace word_cache_test {

TEST(WordCache, GivesUpAmongManyCollidingWords) {
  WordCache cache(512);  // 1,024 slots
  std::vector<std::string> words;
  for (int i = 0; words.size() < 100; ++i)
    if (std::string word = std::to_string(i); WordCache::key_of(word).hash % 1024 == 7)
      words.push_back(std::move(word));
  size_t found = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::vector<int32_t> ids{static_cast<int32_t>(i)};
    cache.add(WordCache::key_of(words[i]), words[i], ids);
  }
  for (size_t i = 0; i < words.size(); ++i) {
    const auto ids = cache.find(WordCache::key_of(words[i]), words[i]);
    if (ids.empty()) continue;
    ++found;
    EXPECT_EQ(ids[0], static_cast<int32_t>(i));
  }
  EXPECT_EQ(found, 64u) << "a lookup reads at most 64 slots";
}

}  // namespace word_cache_test
}  // namespace godwit::data
