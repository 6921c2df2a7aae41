// The table of settings: one line each serves the command line, JSON, the printed configuration and the help.
#pragma once
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "apps/common/config.h"

namespace godwit::apps {

inline constexpr const char* kDefaultOptimizer = "sgdm";

using SettingRef =
    std::variant<bool*, int*, int64_t*, long long*, uint64_t*, double*, std::string*, std::vector<double>*>;

struct Range {
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  bool min_open = false, max_open = false;  // the bound itself is not allowed
};

struct Setting {
  std::string section;  // of the help and the summary
  std::string path;     // key in the JSON file and of --set: "optimizer.lr"
  std::string flag;     // "--lr"; empty: --set only
  SettingRef (*member)(TrainConfig&);
  std::string help;                                 // one line, with the unit
  Range range;                                      // numbers, each element of a list
  std::vector<std::string> (*choices)() = nullptr;  // words allowed; null: any text
};

const std::vector<Setting>& settings();                // in the order of printing
const Setting* find_setting(const std::string& path);  // null when there is none
bool is_group(const std::string& path);                // "optimizer", "data", …
const Setting* short_form(const std::string& group);   // what a bare word for a group sets: its name or path; or null
[[noreturn]] void fail_unknown_key(const std::string& subject, const std::string& path);  // names the nearest

// A value as it was written: in JSON or, as text, on the command line.
struct Value {
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, std::vector<double>>
      data;           // monostate: none of these
  std::string shown;  // for messages
};
Value value_from_text(const Setting& setting, const std::string& text);  // read as the setting's type when it can be

// One value for one setting. `subject` opens an error's text: "--lr", "run.json: optimizer.lr".
struct Assignment {
  const Setting* setting;
  Value value;
  std::string subject;
};
// Throws for a wrong type, a number outside the range or not finite, a word that is not among the choices.
void assign(TrainConfig& config, const Assignment& assignment);

// "1e-08", "true", "birder", "30,60".
std::string value_text(const TrainConfig& config, const Setting& setting);

bool applies(const TrainConfig& config, const Setting& setting);  // the chosen optimizer or schedule reads it
std::vector<std::string> schedule_keys(const std::string& name);  // that a schedule reads, besides its name

}  // namespace godwit::apps
