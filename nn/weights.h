// A module's weights as safetensors files that PyTorch can read and write, with torchvision's names and layout.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "engine/safetensors.h"
#include "nn/module.h"

namespace godwit::nn {

// The parameters as tensors of a file, in the file's layout. Values are read when the file is written. Sharded
// parameters then have memory for one bucket at a time.
std::vector<TensorSource> tensor_sources(const std::vector<Parameter>& parameters);

// Values of a file as `type`, on the CPU. Throws an Error that names `file` and the tensor if a value is infinite or
// NaN, or beyond the range of float32, unless `type` is float64.
Tensor finite_values(const std::string& file, const std::string& name, const Tensor& values, DType type);

// Writes all parameters and buffers. Filters become [out, in, kh, kw]. On failure, no partial file remains.
void save_weights(const std::string& path, const Module& module);

// Loads a file of save_weights() or a PyTorch program into the module's memory. Values are float32 or float64, or have
// the module's type. Ignores num_batches_tracked. Returns whether the `replaceable` parameters keep their values.
//
// `name_of` maps a name in the file to the module's name, for files with other names. `replaceable`: parameters that
// the file may lack or have with another shape, such as the last layer for other classes. If one of them is missing or
// differs, all replaceable parameters keep their values.
//
// If tensors are missing, unexpected, or of another shape or type, one Error lists them (up to five names each), and
// the module is unchanged. Another Error names a tensor with an infinite value or NaN.
//
// If a DataParallel with sharded or rounded parameters uses the module, call this in
// DataParallel::with_master_weights(). Otherwise, the DataParallel replaces the loaded values by its master weights.
bool load_weights(const std::string& path, const Module& module,
                  const std::function<std::string(const std::string&)>& name_of = {},
                  const std::vector<std::string>& replaceable = {});

// Part of such an Error: " 3 missing (a, b, c);" with at most five items, or "" if there are no items.
std::string listed(const std::vector<std::string>& items, const char* what);

}  // namespace godwit::nn
