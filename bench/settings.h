// Settings: the name=value arguments of a benchmark. JsonLine: a result as a JSON line.
#pragma once
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "bench/program.h"
#include "comm/transport/local.h"
#include "engine/check.h"
#include "engine/dtype.h"

namespace godwit::bench {

class Settings {
 public:
  Settings(int argc, char** argv, std::map<std::string, std::string> defaults) : values_(std::move(defaults)) {
    values_.emplace("device", "cpu");  // cpu, cuda, cuda:1, …
    values_.emplace("json", "0");
    std::string names;
    for (const auto& [name, value] : values_) names += " " + name + "=";
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      const size_t equals = argument.find('=');
      check(equals != std::string::npos && values_.contains(argument.substr(0, equals)), argv[0], ": '", argument,
            "' is unknown; expected one of", names);
      values_[argument.substr(0, equals)] = argument.substr(equals + 1);
    }
    check(!values_.contains("dtype") || text("dtype") == "f32" || text("dtype") == "bf16", argv[0],
          ": dtype is f32 or bf16");
  }
  const std::string& text(const char* name) const { return values_.at(name); }
  int number(const char* name) const { return static_cast<int>(whole_number(values_.at(name), name, 0)); }
  DType dtype() const { return text("dtype") == "bf16" ? DType::bf16 : DType::f32; }
  bool graph() const { return text("graph") == "1"; }  // use CUDA graphs; for benchmarks with this setting
  bool json() const { return text("json") == "1"; }

  // Runs body(communicator) as a single rank on the configured device. threads: 0 means all cores.
  void run_alone(int threads, const std::function<void(Communicator&)>& body) const {
    LocalOptions options;
    options.threads_per_rank = threads;
    options.placement.device = text("device");
    run_local({1, 1}, body, options);
  }

 private:
  std::map<std::string, std::string> values_;
};

// A line such as {"name": "…", "ms": 1.5}.
class JsonLine {
 public:
  JsonLine& add(const char* name, const std::string& value) { return add_text(name, '"' + value + '"'); }
  JsonLine& add(const char* name, double value) {
    char number[32];
    std::snprintf(number, sizeof(number), "%.9g", value);
    return add_text(name, std::isfinite(value) ? number : "null");
  }
  void print() const { std::printf("{%s}\n", text_.c_str()), std::fflush(stdout); }

 private:
  JsonLine& add_text(const char* name, const std::string& value) {
    text_ += (text_.empty() ? "\"" : ", \"") + std::string(name) + "\": " + value;
    return *this;
  }
  std::string text_;
};

}  // namespace godwit::bench
