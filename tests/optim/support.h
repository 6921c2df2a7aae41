// Helpers of the optimizer tests.
#pragma once
#include <string>

#include "engine/check.h"

namespace godwit::test {

// Sets an option if the method has it.
template <class Config, class T>
void set_if_known(Config& config, const std::string& option, const T& value) {
  if (config.has(option)) config.set(option, value);
}

// The message of the Error that f throws; "" if f throws none.
template <class F>
std::string error_or_none(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace godwit::test
