// BERTs as HuggingFace's folders: config.json and model.safetensors, read and written. The tokenizer is the program's.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/bert.h"

namespace godwit {

// What load_pretrained() found.
struct LoadReport {
  int64_t loaded = 0;                   // tensors of the model
  std::vector<std::string> missing;     // of the model's heads and not in the file: they keep their values
  std::vector<std::string> unexpected;  // of the file's heads and not in the model: passed over
  std::string str() const;              // one line
};

// Fills the model, in its own memory (also once bound to buckets), from a folder or a safetensors file with weights of
// float64/32/16 or bfloat16, named as by any version of HuggingFace's: with or without "bert.", gamma and beta, with or
// without the tied decoder. Embeddings and encoder must be whole. One Error names the tensors that are not, or have
// another shape or type, and the field of config.json that says so; the model is unchanged then.
LoadReport load_pretrained(const std::string& path, const BertModule& model);

// Outputs of the file's head for classes (classifier.weight); none where it has no such head. `path` as above.
std::optional<int64_t> classifier_outputs(const std::string& path);

// Writes what HuggingFace's from_pretrained reads, into a folder that is made where it is missing. Each file appears
// whole or not at all.
void save_pretrained(const std::string& folder, const BertModule& model);

}  // namespace godwit
