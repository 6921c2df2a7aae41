// The safetensors file format: named tensors behind a JSON header. Nothing in a file is trusted before it is checked.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/tensor.h"

namespace godwit {

// All tensors of a file, on the CPU, in memory of the context's pool. float64/32/16, bfloat16, int64/32, uint32/8 are
// read. Throws one Error naming the file, and the tensor where one is wrong: cut or padded files, headers that are not
// valid JSON or name a tensor twice, unknown types, and byte ranges that do not fit the shape, overlap or leave holes.
std::map<std::string, Tensor> load_safetensors(const std::string& path,
                                               std::map<std::string, std::string>* metadata = nullptr);

// The same without a copy: the tensors lie in the file's own pages, read when they are touched; writing to them does not
// reach the file. Only tensors not aligned to their type are copied. A file that someone shortens while such tensors are
// in use ends the process (SIGBUS), as with every memory-mapped file: take what is wanted and let go of them.
std::map<std::string, Tensor> map_safetensors(const std::string& path,
                                              std::map<std::string, std::string>* metadata = nullptr);

// Writes a temporary file beside `path` and renames it when it is safely on disk: a reader sees the old file or the
// whole new one, and a failure (Error) leaves neither a part nor the temporary file.
void save_safetensors(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace godwit
