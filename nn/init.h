// Initial values of parameters. Each value is a pure function of (seed, name) and does not depend on registration order
// or threads.
#pragma once
#include <cstdint>
#include <functional>

#include "nn/module.h"

namespace godwit::nn {

// ResNet initialization as in torchvision. Filters are normal with variance 2 / (out · kh · kw) (He et al. 2015,
// fan-out). Matrices [out, in] and their biases are uniform in ±1/√in. Other parameters keep their values.
void initialize(const Module& module, uint64_t seed);

// BERT initialization (Devlin et al. 2018; HuggingFace's variant, not truncated): matrices and embeddings are normal
// with standard deviation `deviation`. Other parameters keep their values.
void initialize_normal(const Module& module, uint64_t seed, double deviation);

// All initializers leave deferred parameters (DeferParameters) without memory. Values are drawn when they are needed,
// row by row, and only for the elements that a rank keeps.

// Fills one parameter with normal numbers of standard deviation `deviation`. Row `zero_row` is set to 0; -1: none.
void fill_normal(const Parameter& parameter, uint64_t seed, double deviation, int64_t zero_row = -1);

// Fills one parameter with numbers that are uniform in ±bound.
void fill_uniform(const Parameter& parameter, uint64_t seed, double bound);

// Fills each parameter with numbers that are uniform in ±bound(parameter). Parameters with bound 0 keep their values.
void initialize_uniform(const Module& module, uint64_t seed, const std::function<double(const Parameter&)>& bound);

}  // namespace godwit::nn
