// Tensors of HuggingFace folders. The models share this code for loading and saving.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/module.h"

namespace godwit {

inline constexpr const char* kWeightsFile = "model.safetensors";  // file name in a HuggingFace folder
inline constexpr int64_t kWeightsFileBytes = 5'000'000'000;       // a larger model has several files

// The weight file for `path`: the file itself, or model.safetensors or its index in the folder. Throws if there is
// none.
std::string weights_file(const std::string& path);

// The field of config.json that determines extent `dimension` of a tensor.
using FieldOf = std::function<const char*(std::string_view name, int dimension)>;

// Describes the difference in type or shape between a tensor of a file and the model's tensor. "" if the tensor fits.
std::string difference(const std::string& name, const Tensor& loaded, const Shape& expected, const FieldOf& field_of);

bool same_bits(const Tensor& a, const Tensor& b);  // whether type, shape and bytes are equal

// Removes and returns the tensor `name`, which is another name of the parameter `of`; an empty node if there is none.
// Throws an Error that names `file` if the tensors of both names differ.
std::map<std::string, Tensor>::node_type extract_tied(const std::string& file, const char* name, const char* of,
                                                      std::map<std::string, Tensor>* tensors);

// Sets each parameter to the values of its tensor with nn::set_values(). The tensors have the shapes of files. Throws
// an Error that names `file` and the parameter if a value is infinite or NaN.
void copy_converted(const std::string& file, const std::vector<std::pair<Tensor, Parameter>>& pairs);

// Copies the file's tensors to the parameters of the same names. If tensors are missing, unexpected or different,
// throws an Error that names them; all parameters are then unchanged. Otherwise throws like copy_converted(). `model`:
// "a GPT-2 of 12 layers (n_layer)".
void load_parameters(const std::string& file, std::map<std::string, Tensor> tensors,
                     const std::vector<Parameter>& parameters, const FieldOf& field_of, const std::string& model);

// Writes the parameters to model.safetensors in a folder, which is created if it does not exist. A model of more than
// max_bytes gets several files and an index, as in HuggingFace. Each of these files has at most max_bytes, or one
// parameter. Files of an earlier model that the new one does not have are then removed.
void save_weights_file(const std::string& folder, const std::vector<Parameter>& parameters,
                       int64_t max_bytes = kWeightsFileBytes);

}  // namespace godwit
