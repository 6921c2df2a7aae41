// Initial values of parameters, each a pure function of (seed, name): independent of registration order and threads.
#pragma once
#include <cstdint>

#include "nn/module.h"

namespace godwit::nn {

// As torchvision does for ResNet: filters normal with variance 2 / (out · kh · kw) (He et al. 2015, fan-out); matrices
// [out, in] and the bias beside them uniform in ±1/√in. Everything else keeps its value.
void initialize(const Module& module, uint64_t seed);

// As BERT does (Devlin et al. 2018; HuggingFace's, not truncated): matrices and embeddings normal with this deviation.
// Everything else keeps its value.
void initialize_normal(const Module& module, uint64_t seed, double deviation);

}  // namespace godwit::nn
