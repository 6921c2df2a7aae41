#include "data/text/byte_trie.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "engine/philox.h"

namespace godwit::data {
namespace byte_trie_test {

ByteTrie trie_of(const std::map<std::string, int32_t>& words) { return ByteTrie({words.begin(), words.end()}); }

std::string random_bytes(RandomStream& random, uint32_t longest, uint32_t kinds) {
  std::string bytes;
  for (uint32_t n = random.below(longest + 1); n-- > 0;) bytes.push_back(static_cast<char>(255 - random.below(kinds)));
  return bytes;
}

TEST(ByteTrie, FindsTheLongestPrefix) {
  const ByteTrie trie = trie_of({{"a", 0}, {"ab", 1}, {"abcd", 2}, {"b", 3}, {"\xff\x01", 4}});
  EXPECT_EQ(trie.longest("abce").value, 1);
  EXPECT_EQ(trie.longest("abce").length, 2u);
  EXPECT_EQ(trie.longest("abcdabcd").value, 2);
  EXPECT_EQ(trie.longest("ac").value, 0);
  EXPECT_EQ(trie.longest("\xff\x01").value, 4);
  for (const char* none : {"", "c", "\xff", "A"}) EXPECT_EQ(trie.longest(none).length, 0u) << none;
}

TEST(ByteTrie, EmptySetsAndUnfindableWords) {
  const std::string zero("\0", 1);
  for (const ByteTrie& trie : {trie_of({}), trie_of({{"", 7}}), trie_of({{zero, 7}, {"a" + zero, 8}})})
    for (const std::string& text : {std::string(), zero, "a" + zero, std::string("a")})
      EXPECT_EQ(trie.longest(text).length, 0u);
}

TEST(ByteTrie, MatchesTryingAllPrefixes) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    RandomStream random(seed, Purpose::test);
    const uint32_t kinds = seed % 2 ? 255 : 3;
    std::map<std::string, int32_t> words;
    for (int32_t i = 0; i < 3000; ++i) words[random_bytes(random, seed < 2 ? 2 : 9, kinds)] = i;
    words.erase("");
    const ByteTrie trie = trie_of(words);
    for (int i = 0; i < 3000; ++i) {
      const std::string text = random_bytes(random, 12, kinds);
      int32_t value = -1;
      size_t length = 0;
      for (size_t n = 1; n <= text.size(); ++n)
        if (const auto found = words.find(text.substr(0, n)); found != words.end()) value = found->second, length = n;
      const ByteTrie::Match match = trie.longest(text);
      ASSERT_EQ(match.value, value);
      ASSERT_EQ(match.length, length);
    }
  }
}

TEST(ByteTrie, LongWord) {
  const std::string word(1'000'000, 'w');
  EXPECT_EQ(trie_of({{word, 5}}).longest(word + "w").length, word.size());
}

}  // namespace byte_trie_test
}  // namespace godwit::data
