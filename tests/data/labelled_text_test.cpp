#include "data/labelled_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/files.h"

namespace godwit::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

LabelledText parse(const std::string& text, const std::vector<std::string>& classes = {}) {
  TempFolder folder;
  write(folder / "x.tsv", Bytes(text.begin(), text.end()));
  return read_labelled_text(folder / "x.tsv", classes);
}

std::string error_for(const std::string& text, const std::vector<std::string>& classes = {}) {
  return error_of([&] { parse(text, classes); });
}

TEST(LabelledText, ReadsSentencesAndLabels) {
  const LabelledText text = parse("sentence\tlabel\na \"b c\t1\n d's \t0\n");
  EXPECT_THAT(text.sentences, ElementsAre("a \"b c", "d's"));
  EXPECT_THAT(text.labels, ElementsAre(1, 0));
  EXPECT_THAT(text.classes, ElementsAre("0", "1"));
  const LabelledText other = parse("index\tlabel\tsentence\r\n7\tup\tx\r\n8\tdown\ty\r\n9\tup\tz");
  EXPECT_THAT(other.sentences, ElementsAre("x", "y", "z"));
  EXPECT_THAT(other.classes, ElementsAre("down", "up"));
  EXPECT_THAT(other.labels, ElementsAre(1, 0, 1));
  EXPECT_THAT(parse("\xef\xbb\xbfsentence\tlabel\na\t0\n").sentences, ElementsAre("a"));  // marked as UTF-8
}

TEST(LabelledText, WholeNumbersAreTheirOwnIndices) {
  EXPECT_THAT(parse("sentence\tlabel\na\t3\nb\t10\n").labels, ElementsAre(3, 10));
  EXPECT_EQ(parse("sentence\tlabel\na\t3\nb\t10\n").classes.size(), 11u);
  EXPECT_THAT(parse("sentence\tlabel\na\t3\nb\tx\nc\t-1\n").classes, ElementsAre("-1", "3", "x"));
  EXPECT_THAT(parse("sentence\tlabel\na\t01\nb\t1\n").classes, ElementsAre("01", "1"));
  EXPECT_THAT(parse("sentence\tlabel\na\t2000000000\nb\t0\n").classes, ElementsAre("0", "2000000000"));
}

TEST(LabelledText, TakesTheClassesOfTheTrainingFile) {
  const LabelledText text = parse("sentence\tlabel\na\tup\n", {"down", "left", "up"});
  EXPECT_THAT(text.labels, ElementsAre(2));
  EXPECT_EQ(text.classes.size(), 3u);
  EXPECT_THAT(error_for("sentence\tlabel\na\tup\nb\tupp\n", {"down", "up"}),
              AllOf(HasSubstr("x.tsv:3: "), HasSubstr("\"upp\""), HasSubstr("'up'")));
}

TEST(LabelledText, NamesTheLine) {
  EXPECT_THAT(error_for(""), HasSubstr("x.tsv: is empty"));
  EXPECT_THAT(error_for("sentence\tlabel\n"), HasSubstr("x.tsv: holds no sentence"));
  EXPECT_THAT(error_for("index\tsentence\n0\ta\n"),
              AllOf(HasSubstr("no column \"label\""), HasSubstr("\"index\", \"sentence\"")));
  EXPECT_THAT(error_for("sentence\tlabel\na\t1\nb\n"), HasSubstr("x.tsv:3: 1 field, the first line names 2"));
  EXPECT_THAT(error_for("sentence\tlabel\na\t1\t\n"), HasSubstr("x.tsv:2: 3 fields"));
  EXPECT_THAT(error_for("sentence\tlabel\n\na\t1\n"), HasSubstr("x.tsv:2: 1 field"));
  EXPECT_THAT(error_for("sentence\tlabel\na\t1\n \t1\n"), HasSubstr("x.tsv:3: sentence is blank"));
  EXPECT_THAT(error_for("sentence\tlabel\na\t \n"), HasSubstr("x.tsv:2: label is blank"));
  EXPECT_THAT(error_for("sentence\tlabel\na\tcaf\u00e9\nb\tcaf\xe9\n"), HasSubstr("x.tsv:3: the label is not UTF-8"));
}

TEST(LabelledText, ReadsSst2) {
  const struct {
    const char* name;
    size_t sentences;
  } sets[] = {{"sst2/train.tsv", 67349}, {"sst2/dev.tsv", 872}};
  for (const auto& set : sets) {
    const std::string path = data_path(set.name);
    if (path.empty()) GTEST_SKIP() << "no " << set.name << "; GODWIT_DATA names the folder of data sets";
    const LabelledText text = read_labelled_text(path);
    EXPECT_EQ(text.sentences.size(), set.sentences);
    EXPECT_THAT(text.classes, ElementsAre("0", "1"));
  }
}

}  // namespace
}  // namespace godwit::data
