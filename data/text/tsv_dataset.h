// Sentences with classes, from tab-separated files such as GLUE's SST-2.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace godwit::data {

struct TsvDataset {
  std::vector<std::string> sentences;
  std::vector<int32_t> labels;       // indices into classes
  std::vector<std::string> classes;  // names
  bool numbered = false;             // the file writes the indices of the classes instead of their names
};

// The first line names the columns, of which "sentence" and "label" are read; fields are raw, tabs alone part them.
// Blank lines at the end are passed over. Labels that are all whole numbers are the classes 0 … K-1, and none of them
// may be missing; other labels are the names of classes, sorted. Throws one Error naming the file, and the line where
// there is one, when a column is missing, a line has another number of fields, a sentence or label is blank, a label is
// not UTF-8 or is a number with a decimal point, or there is one class only.
TsvDataset read_tsv_dataset(const std::string& path);

// Classes that labels must be among.
struct KnownClasses {
  std::vector<std::string> names;
  std::optional<bool> numbered;  // none: numbers where all labels of the file are whole numbers and not all are names
  std::string origin;            // of the classes: a file, for messages
  std::string remedy;            // the end of the message about a label that is none of them
};

// Reads labels of known classes; the file may lack some of them. Throws also for other labels, naming them.
TsvDataset read_tsv_dataset(const std::string& path, const KnownClasses& known);

}  // namespace godwit::data
