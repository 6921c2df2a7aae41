// Rotary frequencies of HuggingFace's LLaMA models, and their scaling to longer contexts.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autograd/ops/rotary.h"

namespace godwit {

// The fields of rope_parameters in config.json.
struct RotaryScaling {
  std::string type = "default";                      // or linear, dynamic, llama3, yarn
  double theta = 10000;                              // base of the wavelengths
  double factor = 1;                                 // linear, dynamic, llama3, yarn: growth factor of the context
  int64_t original_positions = 0;                    // llama3, yarn: number of positions before scaling
  // llama3: wavelengths between original_positions / high_freq_factor and / low_freq_factor are interpolated.
  double low_freq_factor = 1, high_freq_factor = 4;
  // yarn: bounds of the interpolation, in rotations over original_positions.
  double beta_fast = 32, beta_slow = 1;
  std::optional<double> attention_factor = {}, mscale = {}, mscale_all_dim = {};  // yarn: factor of cosines and sines
  // yarn: round the bounds of the interpolated columns outward.
  bool truncate = true;
};

std::vector<std::string> rotary_types();  // supported values of type

// Throws if a field is out of range or the type is not supported. The message begins with `name`, the model's name.
void check_rotary(const RotaryScaling& scaling, const std::string& name);

// Radians per position for each pair of columns, [head_dim / 2], as in transformers. "dynamic" has an effect only
// beyond the model's positions, so here it equals "default".
std::vector<double> rotary_frequencies(const RotaryScaling& scaling, int64_t head_dim);

double rotary_magnitude(const RotaryScaling& scaling);  // factor of cosines and sines: 1 except for yarn

// Cosines and sines of positions 0 to positions - 1. They are computed in float64 and stored on the context's device.
RotaryTable rotary_table(const RotaryScaling& scaling, int64_t head_dim, int64_t positions, DType dtype);

}  // namespace godwit
