#include "engine/did_you_mean.h"

#include <gtest/gtest.h>

namespace godwit {
namespace did_you_mean_test {

const std::vector<std::string> kNames{"sgd", "sgdm", "adam", "adamw", "softsignsgd", "birder", "binsgdm"};

TEST(DidYouMean, FindsMisspelledWords) {
  EXPECT_EQ(nearest("birdr", kNames), "birder");
  EXPECT_EQ(nearest("Birder", kNames), "birder");
  EXPECT_EQ(nearest("bidrer", kNames), "birder") << "swapping two adjacent letters is one edit";
  EXPECT_EQ(nearest("soft-sign-sgd", kNames), "softsignsgd");
  EXPECT_EQ(nearest("adma", kNames), "adam");
  EXPECT_EQ(nearest("weight-decay", {"weight_decay", "weights"}), "weight_decay");
}

TEST(DidYouMean, ReturnsNothingWhenNothingIsClose) {
  EXPECT_EQ(nearest("lion", kNames), "");
  EXPECT_EQ(nearest("", kNames), "");
  EXPECT_EQ(nearest("sgd", {}), "");
}

TEST(DidYouMean, SuggestionEndsAMessage) {
  EXPECT_EQ(did_you_mean("birdr", kNames), "; did you mean 'birder'?");
  EXPECT_EQ(did_you_mean("lion", {"sgd", "adam"}), "; available: sgd, adam");
}

// Names from a file may be long and numerous.
TEST(DidYouMean, TimeAndTextAreBounded) {
  const std::string word(50000, 'x');
  std::vector<std::string> names(1000, std::string(50000, 'y'));
  EXPECT_EQ(nearest(word, names), "");
  EXPECT_EQ(nearest("birdr", names), "");
  EXPECT_LT(did_you_mean(word, names).size(), 5000u);
  EXPECT_EQ(did_you_mean("x", std::vector<std::string>(32, "name\n")).substr(0, 25), "; available: name\\n, name");
}

}  // namespace did_you_mean_test
}  // namespace godwit
