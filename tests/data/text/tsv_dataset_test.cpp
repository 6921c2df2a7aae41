#include "data/text/tsv_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/files.h"

namespace godwit::data {
namespace tsv_dataset_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TsvDataset parse(const std::string& text) {
  TempFolder folder;
  write(folder / "x.tsv", Bytes(text.begin(), text.end()));
  return read_tsv_dataset(folder / "x.tsv");
}

// Parses a file with one sentence per label.
TsvDataset parse_labels(const std::vector<std::string>& labels, const KnownClasses& known) {
  std::string text = "sentence\tlabel\n";
  for (const std::string& label : labels) text += "a\t" + label + "\n";
  TempFolder folder;
  write(folder / "x.tsv", Bytes(text.begin(), text.end()));
  return read_tsv_dataset(folder / "x.tsv", known);
}

std::string error_for(const std::string& text) {
  return error_of([&] { parse(text); });
}

TEST(TsvDataset, ReadsSentencesAndLabels) {
  const TsvDataset text = parse("sentence\tlabel\na \"b c\t1\n d's \t0\n");
  EXPECT_THAT(text.sentences, ElementsAre("a \"b c", "d's"));
  EXPECT_THAT(text.labels, ElementsAre(1, 0));
  EXPECT_THAT(text.classes, ElementsAre("0", "1"));
  const TsvDataset other = parse("index\tlabel\tsentence\r\n7\tup\tx\r\n8\tdown\ty\r\n9\tup\tz");
  EXPECT_THAT(other.sentences, ElementsAre("x", "y", "z"));
  EXPECT_THAT(other.classes, ElementsAre("down", "up"));
  EXPECT_THAT(other.labels, ElementsAre(1, 0, 1));
  EXPECT_THAT(parse("\xef\xbb\xbfsentence\tlabel\na\t0\nb\t1\n").sentences, ElementsAre("a", "b"));  // byte order mark
}

TEST(TsvDataset, IgnoresBlankLinesAtTheEnd) {
  for (const std::string end : {"", "\n", "\n\n", "\r\n", "\r\n\r\n", "\n \n"}) {
    const TsvDataset text = parse("sentence\tlabel\na\tup\nb\tdown" + end);
    EXPECT_THAT(text.sentences, ElementsAre("a", "b"));
    EXPECT_THAT(text.labels, ElementsAre(1, 0));
  }
  EXPECT_THAT(error_for("\n\n"), HasSubstr("x.tsv: is empty"));
  EXPECT_THAT(error_for("sentence\tlabel\na\t1\n\n\nb\t0\n\n"), HasSubstr("x.tsv:3: 1 field"));
}

// A model has memory for each class, so another column in place of the labels must not become a million classes.
TEST(TsvDataset, LimitsTheNumberOfClasses) {
  std::string text = "sentence\tlabel\n";
  for (int i = 0; i < (1 << 16); ++i) text += "a\t" + std::to_string(i) + "\n";
  EXPECT_EQ(parse(text).classes.size(), size_t{1} << 16);
  EXPECT_THAT(error_for(text + "a\t65536\n"), HasSubstr("x.tsv: has 65537 classes, the limit is 65536"));
}

TEST(TsvDataset, IntegerLabelsAreClassIndices) {
  const TsvDataset text = parse("sentence\tlabel\na\t2\nb\t0\nc\t1\n");
  EXPECT_THAT(text.labels, ElementsAre(2, 0, 1));
  EXPECT_THAT(text.classes, ElementsAre("0", "1", "2"));
  EXPECT_THAT(parse("sentence\tlabel\na\t3\nb\tx\nc\t-1\n").classes, ElementsAre("-1", "3", "x"));
  EXPECT_THAT(parse("sentence\tlabel\na\t01\nb\t1\n").classes, ElementsAre("01", "1"));
}

TEST(TsvDataset, IntegerLabelsMustHaveNoGaps) {
  EXPECT_THAT(error_for("sentence\tlabel\na\t1\nb\t3\nc\t5\n"),
              AllOf(HasSubstr("x.tsv: "), HasSubstr("0, 2, 4 are missing"), HasSubstr("renumber"), HasSubstr("names")));
  EXPECT_THAT(error_for("sentence\tlabel\na\t1\nb\t2\n"), HasSubstr("0 is missing"));
  EXPECT_THAT(error_for("sentence\tlabel\na\t0\nb\t2000000000\n"), HasSubstr("1, 2, 3, 4, 5, … are missing"));
  EXPECT_THAT(error_for("sentence\tlabel\na\t0\nb\t99999999999999999999\n"),
              HasSubstr("whole numbers up to 99999999999999999999, but 1, 2, 3, 4, 5, … are missing"));
  EXPECT_THAT(error_for("sentence\tlabel\na\t0\nb\t-99999999999999999999\n"),
              HasSubstr("\"-99999999999999999999\" is below 0"));
  EXPECT_THAT(error_for("sentence\tlabel\na\t-1\nb\t1\n"), AllOf(HasSubstr("\"-1\""), HasSubstr("renumber")));
}

TEST(TsvDataset, RefusesASingleClass) {
  EXPECT_THAT(error_for("sentence\tlabel\na\tup\nb\tup\n"), AllOf(HasSubstr("\"up\""), HasSubstr("two classes")));
  EXPECT_THAT(error_for("sentence\tlabel\na\t0\n"), HasSubstr("two classes"));
}

// As in STS-B.
TEST(TsvDataset, RefusesRegressionTargets) {
  EXPECT_THAT(error_for("sentence\tlabel\na\t5.000\nb\t3.800\n"),
              AllOf(HasSubstr("x.tsv:2: "), HasSubstr("\"5.000\""), HasSubstr("regression"),
                    HasSubstr("names or whole numbers")));
  for (const std::string number : {"1.0", "-0.5", "+.5", "3.", "2.5e-3"})
    EXPECT_THAT(error_for("sentence\tlabel\na\t0\nb\t" + number + "\n"),
                AllOf(HasSubstr("x.tsv:3: "), HasSubstr("regression")));
  EXPECT_THAT(parse("sentence\tlabel\na\tv1.0\nb\t1.0.2\nc\t.\nd\tnan\n").classes.size(), 4u) << "not numbers";
}

TEST(TsvDataset, KnownClassesKeepTheirOrder) {
  const KnownClasses known{.names = {"up", "left", "down"}, .numbered = {}, .origin = "config.json", .remedy = "ask"};
  const TsvDataset text = parse_labels({"down", "up"}, known);
  EXPECT_THAT(text.labels, ElementsAre(2, 0));
  EXPECT_EQ(text.classes, known.names);
  EXPECT_FALSE(text.numbered);
  const TsvDataset numbers = parse_labels({"2", "0"}, known);
  EXPECT_THAT(numbers.labels, ElementsAre(2, 0));
  EXPECT_EQ(numbers.classes, known.names);
  EXPECT_TRUE(numbers.numbered);
  const auto error = [&](const std::vector<std::string>& labels) {
    return error_of([&] { parse_labels(labels, known); });
  };
  EXPECT_THAT(error({"up", "upp", "dawn", "upp"}),
              AllOf(HasSubstr("x.tsv:3: labels \"upp\", \"dawn\" are none of the 3 classes of config.json (\"up\", "
                              "\"left\", \"down\"); did you mean 'up'?; ask")));
  EXPECT_THAT(
      error({"0", "3"}),
      HasSubstr("x.tsv:3: label \"3\" is none of the 3 numbers of classes of config.json (0 \"up\", 1 \"left\""));
  EXPECT_THAT(error({"0", "-1"}), HasSubstr("label \"-1\""));
  EXPECT_THAT(error({"0", "up", "1"}), HasSubstr("labels \"0\", \"1\" are none of the 3 classes"));
  EXPECT_THAT(error({"up", "0.5"}), AllOf(HasSubstr("x.tsv:3: "), HasSubstr("regression")));
  EXPECT_THAT(error({"a", "b", "c", "d", "e", "f"}), HasSubstr("\"e\", … are none"));
}

// If class names are numbers, labels are read as names when all labels are class names. Later files are read in the
// same way as the first.
TEST(TsvDataset, ClassNamesMayBeNumbers) {
  KnownClasses known{.names = {"1", "2", "3"}, .numbered = {}, .origin = "config.json", .remedy = {}};
  EXPECT_THAT(parse_labels({"1", "3"}, known).labels, ElementsAre(0, 2));
  EXPECT_THAT(parse_labels({"1", "0"}, known).labels, ElementsAre(1, 0));
  known.numbered = true;
  EXPECT_THAT(parse_labels({"1", "2"}, known).labels, ElementsAre(1, 2));
  known.numbered = false;
  EXPECT_THAT(error_of([&] { parse_labels({"1", "0"}, known); }),
              AllOf(HasSubstr("x.tsv:3: label \"0\""), Not(HasSubstr("did you mean"))));
  known.names = {"1.0", "2.5"};
  EXPECT_THAT(parse_labels({"2.5", "1.0"}, known).labels, ElementsAre(1, 0));
}

TEST(TsvDataset, NamesTheLineOfAnError) {
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
  EXPECT_THAT(error_for("label\tsentence\tlabel\n0\ta\t1\n1\tb\t0\n"),
              HasSubstr("x.tsv: the first line names two columns \"label\""));
}

TEST(TsvDataset, ReadsSst2) {
  const struct {
    const char* name;
    size_t sentences;
  } sets[] = {{"sst2/train.tsv", 67349}, {"sst2/dev.tsv", 872}};
  for (const auto& set : sets) {
    const std::string path = data_path(set.name);
    if (path.empty()) GTEST_SKIP() << "no " << set.name << "; set GODWIT_DATA to the dataset folder";
    const TsvDataset text = read_tsv_dataset(path);
    EXPECT_EQ(text.sentences.size(), set.sentences);
    EXPECT_THAT(text.classes, ElementsAre("0", "1"));
  }
}

}  // namespace tsv_dataset_test
}  // namespace godwit::data
