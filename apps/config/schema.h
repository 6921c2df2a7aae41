// The table of settings: one line each serves the command line, JSON, the printed configuration and the help.
#pragma once
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "apps/config/config.h"

namespace godwit::apps {

using SettingRef =
    std::variant<bool*, int*, int64_t*, long long*, uint64_t*, double*, std::string*, std::vector<double>*>;

struct Range {
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  bool min_open = false, max_open = false;  // the bound itself is not allowed
};

inline constexpr Range kAny{}, kFraction{0, 1}, kBelowOne{0, 1, false, true};
inline constexpr Range kPositive{0, std::numeric_limits<double>::infinity(), true, false};
inline constexpr Range kNotNegative{0, std::numeric_limits<double>::infinity()};
inline constexpr Range kAtLeastOne{1, std::numeric_limits<double>::infinity()};

struct Setting {
  std::string section;  // of the help and the summary
  std::string path;     // key in the JSON file and of --set: "optimizer.lr"
  std::string flag;     // "--lr"; empty: --set only
  SettingRef (*member)(CommonConfig&);              // of a configuration of the program's own type
  std::string help;                                 // one line, with the unit
  Range range;                                      // numbers, each element of a list
  std::vector<std::string> (*choices)() = nullptr;  // words allowed; null: any text
  std::string stands = "";                          // for a value in the help: DIR; empty: NAME, N or X
  bool may_be_number = false;                       // a text that JSON may have as a number
};

// What the rows of all programs say of one of them.
struct Wording {
  std::string unit;        // "images"
  std::string eval_batch;  // "per worker; 0: 250"
  std::string seed;        // "of initialisation and shuffling"
  std::string run_dir;     // "results [runs/<model>-…]"
};
// The sections optimizer, schedule, training, workers and run.
std::vector<Setting> common_settings(const Wording& wording);

struct Program;
const Setting* find_setting(const Program& program, const std::string& path);  // null when there is none
bool is_group(const Program& program, const std::string& path);                // "optimizer", "data", …
// What a bare word for a group sets: its name or path; or null.
const Setting* short_form(const Program& program, const std::string& group);
[[noreturn]] void fail_unknown_key(const Program& program, const std::string& subject,
                                   const std::string& path);  // names the nearest

// A value as it was written: in JSON or, as text, on the command line.
struct Value {
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, std::vector<double>>
      data;           // monostate: none of these
  std::string shown;  // for messages
};
// Read as the setting's type when it can be.
Value value_from_text(const Program& program, const Setting& setting, const std::string& text);

// One value for one setting. `subject` opens an error's text: "--lr", "run.json: optimizer.lr".
struct Assignment {
  const Setting* setting;
  Value value;
  std::string subject;
};
// Throws for a wrong type, a number outside the range or not finite, a word that is not among the choices.
void assign(CommonConfig& config, const Assignment& assignment);

// "1e-08", "true", "birder", "30,60".
std::string value_text(const CommonConfig& config, const Setting& setting);

// The chosen optimizer or schedule, and the program as it is set, read it.
bool applies(const Program& program, const CommonConfig& config, const Setting& setting);
std::vector<std::string> schedule_keys(const std::string& name);  // that a schedule reads, besides its name

}  // namespace godwit::apps
