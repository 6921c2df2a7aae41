// Tables of configurations by name, such as "resnet18" or "bert_base".
#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/check.h"
#include "engine/did_you_mean.h"
#include "engine/excerpt.h"

namespace godwit {

// Whether a list of names has this name.
inline bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// The names and configurations of a family of models.
template <class Config>
using NamedConfigs = std::vector<std::pair<std::string, Config>>;

// The names of all rows, in order.
template <class Config>
std::vector<std::string> names_of(const NamedConfigs<Config>& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.push_back(row.first);
  return names;
}

// The configuration with this name. Throws if there is none; `family` begins the message.
template <class Config>
const Config& config_of(const NamedConfigs<Config>& rows, const char* family, const std::string& name) {
  for (const auto& [known, config] : rows)
    if (known == name) return config;
  fail(family, ": there is no model '", excerpt(name), "'", did_you_mean(name, names_of(rows)));
}

}  // namespace godwit
