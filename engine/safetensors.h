// The safetensors file format: named tensors after a JSON header. All file contents are validated before use.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/tensor.h"

namespace godwit {

// Loads all tensors of a file into CPU memory from the context's pool. Supported types: float64/32/16, bfloat16,
// int64/32, uint32/8. Throws an Error that names the file and, if applicable, the tensor. Errors are truncated or
// padded files, headers that are not valid JSON or repeat a name, unknown types, and byte ranges that do not match the
// shape, overlap or leave gaps.
std::map<std::string, Tensor> load_safetensors(const std::string& path,
                                               std::map<std::string, std::string>* metadata = nullptr);

// Like load_safetensors(), but without a copy: the tensors use a private mapping of the file, whose pages are read on
// first access. Writes do not reach the file. Tensors that are not aligned to their type are copied. If the file is
// truncated while the tensors are in use, the process ends with SIGBUS. Therefore, copy the needed values and release
// the tensors soon.
std::map<std::string, Tensor> map_safetensors(const std::string& path,
                                              std::map<std::string, std::string>* metadata = nullptr);

// Loads the tensors of a safetensors file, or of all files that model.safetensors.index.json lists, with
// map_safetensors(). Throws an Error if the index and the files do not match.
std::map<std::string, Tensor> map_weights(const std::string& path);

// Parses the text of the index `path`. Returns the file of each tensor, without a folder. Throws an Error if the index
// is malformed.
std::map<std::string, std::string> parse_safetensors_index(const std::string& text, const std::string& path);

// The text of an index in the format of HuggingFace's transformers: the file of each tensor, and the total bytes.
std::string safetensors_index(const std::map<std::string, std::string>& file_of, int64_t bytes);

// Writes a temporary file next to `path`, syncs it to disk and renames it. Readers see either the old file or the
// complete new file. On failure, throws an Error and removes the temporary file. Calls `written` with the bytes of the
// file, in order.
void save_safetensors(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                      const std::map<std::string, std::string>& metadata = {},
                      const std::function<void(const void* data, uint64_t bytes)>& written = {});

// A tensor to be written. Its values need not be in memory yet.
struct TensorSource {
  std::string name;                // name in the file
  Shape shape;                     // shape of the values
  DType dtype;                     // type of the values
  std::function<Tensor()> values;  // returns the values, on any device
};

// Like save_safetensors(), with one tensor in memory at a time. Calls values() of each source once, in file order, and
// releases the tensor before the next call.
void stream_safetensors(const std::string& path, const std::vector<TensorSource>& tensors,
                        const std::map<std::string, std::string>& metadata = {},
                        const std::function<void(const void* data, uint64_t bytes)>& written = {});

}  // namespace godwit
