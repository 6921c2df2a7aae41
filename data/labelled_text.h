// Sentences with classes, from tab-separated files such as GLUE's SST-2.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace godwit::data {

struct LabelledText {
  std::vector<std::string> sentences;
  std::vector<int32_t> labels;
  std::vector<std::string> classes;  // names; a label is an index
};

// The first line names the columns, of which "sentence" and "label" are read; fields are raw, tabs alone part them. The
// classes are, unless given (those of the training file for others), 0 … the largest label when all labels are whole
// numbers from 0 to 9999, else the labels themselves, sorted. Throws one Error naming file and line when a column is
// missing, a line has another number of fields, a sentence or label is blank, or a label is not UTF-8 or none
// of the given classes.
LabelledText read_labelled_text(const std::string& path, const std::vector<std::string>& classes = {});

}  // namespace godwit::data
