// Weights of a module as safetensors files that PyTorch programs read and write: torchvision's names and layout.
#pragma once
#include <string>

#include "nn/module.h"

namespace godwit::nn {

// Writes all parameters and buffers; filters become [out, in, kh, kw]. The file appears whole or not at all.
void save_weights(const std::string& path, const Module& module);

// Reads what save_weights or a PyTorch program wrote, float32 or float64 as it comes, into the module's own memory
// (also after its parameters were bound to buckets). num_batches_tracked is passed over. One Error names the tensors
// that are missing, unexpected or of another shape or type; the module is unchanged then.
void load_weights(const std::string& path, const Module& module);

}  // namespace godwit::nn
