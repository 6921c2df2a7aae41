// Reads and writes BERT models as HuggingFace folders: config.json and model.safetensors, without the tokenizer.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/bert.h"

namespace godwit {

// Result of load_pretrained().
struct LoadReport {
  int64_t loaded = 0;                   // number of tensors loaded
  std::vector<std::string> missing;     // tensors of the model's heads that the file lacks; they are unchanged
  std::vector<std::string> unexpected;  // tensors of the file's heads that the model lacks; they are ignored
  std::string str() const;              // a summary on one line
};

// Loads weights (float64/32/16 or bfloat16) from a folder or a safetensors file into the model's memory. Accepts names
// of any HuggingFace version: with or without "bert.", gamma and beta, with or without the tied decoder. Embeddings and
// encoder must be complete. If tensors are missing or have another shape or type, one Error names them and the field of
// config.json that determines the shape; the model is then unchanged. Another Error names a tensor with an infinite
// value or NaN.
LoadReport load_pretrained(const std::string& path, const BertModule& model);

// Number of outputs of the file's classifier.weight; empty if the file has no such head. `path`: as in
// load_pretrained().
std::optional<int64_t> classifier_outputs(const std::string& path);

// Writes a folder for transformers' from_pretrained: config.json and model.safetensors. The folder is created if it
// does not exist. Each file is written completely or not at all.
void save_pretrained(const std::string& folder, const BertModule& model);

}  // namespace godwit
