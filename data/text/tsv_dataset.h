// TsvDataset: classified sentences from tab-separated files, such as GLUE's SST-2.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/text/invalid_utf8.h"

namespace godwit::data {

// Sentences with their classes.
struct TsvDataset {
  std::vector<std::string> sentences;  // not blank
  std::vector<int32_t> labels;         // indices into classes
  std::vector<std::string> classes;    // names
  bool numbered = false;               // whether the file contains class indices instead of class names
};

// The first line contains the column names; only "sentence" and "label" are read. Fields are separated by tabs and have
// no quoting. Blank lines at the end are ignored. If all labels are whole numbers, they are the class indices 0 … K-1,
// all of which must occur. Otherwise, labels are class names, which are sorted. Adds the file's invalid UTF-8 to
// `invalid` if `invalid` is not null.
//
// Throws one Error that names the file and, if applicable, the line. Errors are: a column is missing or occurs twice,
// the number of fields is wrong, a sentence or label is blank, a label is not UTF-8 or has a decimal point, or there is
// only one class.
TsvDataset read_tsv_dataset(const std::string& path, InvalidUtf8* invalid = nullptr);

// The allowed classes of a file.
struct KnownClasses {
  std::vector<std::string> names;  // names of the classes
  std::optional<bool> numbered;    // unset: true if all labels are whole numbers and not all are class names
  std::string origin;              // source of the classes (a file), for messages
  std::string remedy;              // end of the message about an unknown label
};

// Reads a file with known classes. Not all of them must occur. Also throws for unknown labels; the Error names them.
TsvDataset read_tsv_dataset(const std::string& path, const KnownClasses& known, InvalidUtf8* invalid = nullptr);

}  // namespace godwit::data
