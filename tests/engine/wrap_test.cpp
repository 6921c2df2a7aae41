#include "engine/wrap.h"

#include <gtest/gtest.h>

namespace godwit {
namespace wrap_test {

TEST(Wrap, BreaksLinesBefore101Columns) {
  const std::string word(31, 'x');
  EXPECT_EQ(wrap("a", 4, {word, word, word}, " "), "a   " + word + " " + word + " " + word + "\n") << "99 columns";
  EXPECT_EQ(wrap("a", 4, {word, word, word + "y"}, " "), "a   " + word + " " + word + " " + word + "y\n");
  EXPECT_EQ(wrap("a", 4, {word, word, word + "yz"}, " "), "a   " + word + " " + word + "\n    " + word + "yz\n");
  EXPECT_EQ(wrap("a", 4, {word, word, word}, "  "), "a   " + word + "  " + word + "\n    " + word + "\n");
}

TEST(Wrap, KeepsLongLabelsAndLongWords) {
  const std::string word(120, 'x');
  EXPECT_EQ(wrap("a", 4, {word, "b"}, " "), "a   " + word + "\n    b\n");
  EXPECT_EQ(wrap("label: ", 4, {"b"}, " "), "label: b\n");
  EXPECT_EQ(wrap("label: ", 4, {word}, " "), "label:\n    " + word + "\n");
}

}  // namespace wrap_test
}  // namespace godwit
