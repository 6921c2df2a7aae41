#include "models/rotary_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/check.h"
#include "engine/context.h"
#include "engine/excerpt.h"

namespace godwit {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

// Keeps frequencies above the high limit, divides frequencies below the low limit by the factor, and blends in between.
double llama3_frequency(const RotaryScaling& s, double frequency) {
  const double wavelength = kTurn / frequency, positions = static_cast<double>(s.original_positions);
  if (wavelength < positions / s.high_freq_factor) return frequency;
  if (wavelength > positions / s.low_freq_factor) return frequency / s.factor;
  const double kept = (positions / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - kept) * frequency / s.factor + kept * frequency;
}

// Peng et al. 2023: keeps the frequencies of columns below `low`, and divides frequencies above `high` by the factor.
void scale_by_yarn(const RotaryScaling& s, double head_dim, std::vector<double>* frequencies) {
  const auto column = [&](double rotations) {  // with this number of rotations within the original positions
    const double positions = static_cast<double>(s.original_positions);
    return head_dim * std::log(positions / (rotations * kTurn)) / (2 * std::log(s.theta));
  };
  double low = column(s.beta_fast), high = column(s.beta_slow);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, head_dim - 1);
  if (low == high) high += 0.001;  // as in transformers
  for (size_t i = 0; i < frequencies->size(); ++i) {
    const double scaled = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    double& frequency = (*frequencies)[i];
    frequency = frequency / s.factor * scaled + frequency * (1 - scaled);
  }
}

bool positive(double x) { return x > 0 && std::isfinite(x); }

}  // namespace

std::vector<std::string> rotary_types() { return {"default", "linear", "dynamic", "llama3", "yarn"}; }

void check_rotary(const RotaryScaling& s, const std::string& name) {
  const std::vector<std::string> types = rotary_types();
  check(std::find(types.begin(), types.end(), s.type) != types.end(), name, ": rope_type '", excerpt(s.type),
        "' is not supported, expected default, linear, dynamic, llama3 or yarn");
  check(s.theta > 1 && std::isfinite(s.theta), name, ": rope_theta must be finite and above 1, got ", s.theta);
  check(positive(s.factor), name, ": factor of rope_type ", s.type, " must be finite and positive, got ", s.factor);
  if (s.type == "llama3" || s.type == "yarn")
    check(s.original_positions >= 1 && s.original_positions <= 1 << 24, name,
          ": original_max_position_embeddings must be from 1 to ", 1 << 24, ", got ", s.original_positions);
  check(positive(s.low_freq_factor) && positive(s.high_freq_factor) && s.low_freq_factor < s.high_freq_factor, name,
        ": low_freq_factor ", s.low_freq_factor, " and high_freq_factor ", s.high_freq_factor,
        " must be positive, and the first must be smaller");
  check(positive(s.beta_fast) && positive(s.beta_slow) && s.beta_slow <= s.beta_fast, name, ": beta_fast ", s.beta_fast,
        " and beta_slow ", s.beta_slow, " must be positive, and the second must not be larger");
  for (const auto& [field, value] :
       {std::pair{"attention_factor", s.attention_factor}, {"mscale", s.mscale}, {"mscale_all_dim", s.mscale_all_dim}})
    check(!value || (*value >= 0 && std::isfinite(*value)), name, ": ", field, " must be finite and not negative, got ",
          value.value_or(0));
}

std::vector<double> rotary_frequencies(const RotaryScaling& scaling, int64_t head_dim) {
  std::vector<double> frequencies;
  for (int64_t c = 0; c < head_dim; c += 2)
    frequencies.push_back(std::pow(scaling.theta, -static_cast<double>(c) / static_cast<double>(head_dim)));
  if (scaling.type == "linear")
    for (double& frequency : frequencies) frequency /= scaling.factor;
  if (scaling.type == "llama3")
    for (double& frequency : frequencies) frequency = llama3_frequency(scaling, frequency);
  if (scaling.type == "yarn") scale_by_yarn(scaling, static_cast<double>(head_dim), &frequencies);
  return frequencies;
}

double rotary_magnitude(const RotaryScaling& scaling) {
  if (scaling.type != "yarn") return 1;
  if (scaling.attention_factor) return *scaling.attention_factor;
  const auto of = [&](double weight) { return scaling.factor <= 1 ? 1 : 0.1 * weight * std::log(scaling.factor) + 1; };
  const double mscale = scaling.mscale.value_or(0), all = scaling.mscale_all_dim.value_or(0);
  return mscale != 0 && all != 0 ? of(mscale) / of(all) : of(1);
}

RotaryTable rotary_table(const RotaryScaling& scaling, int64_t head_dim, int64_t positions, DType dtype) {
  const std::vector<double> frequencies = rotary_frequencies(scaling, head_dim);
  const double magnitude = rotary_magnitude(scaling);
  const int64_t half = std::ssize(frequencies);
  const Tensor cos({positions, half}, dtype, kCpu), sin({positions, half}, dtype, kCpu);
  dispatch_float(dtype, "rotary_table", [&]<class T>() {
    for (int64_t i = 0; i < positions * half; ++i) {
      const double angle = static_cast<double>(i / half) * frequencies[static_cast<size_t>(i % half)];
      cos.data<T>()[i] = static_cast<T>(static_cast<compute_t<T>>(magnitude * std::cos(angle)));
      sin.data<T>()[i] = static_cast<T>(static_cast<compute_t<T>>(magnitude * std::sin(angle)));
    }
  });
  return {cos.to(context().device), sin.to(context().device)};
}

}  // namespace godwit
