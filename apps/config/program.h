// Program: what one training program adds to what all of them share.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "apps/config/schema.h"
#include "apps/report/rows.h"
#include "comm/group.h"

namespace godwit::apps {

class Progress;
class Task;

// Makes a rank's task from data that the ranks of a process share. Every rank makes one, and they check that they agree.
using TaskMaker = std::function<std::unique_ptr<Task>(Communicator&)>;
using ConfigPtr = std::shared_ptr<CommonConfig>;  // of the program's own type

struct Program {
  std::string name;              // "train_resnet"
  std::string purpose, results;  // what --help begins and ends with
  std::string default_optimizer;
  std::vector<Setting> settings;         // in the order of printing
  std::vector<std::string> of_the_host;  // keys that may differ between hosts, besides those common to all programs

  // Everything but the optimizer. chosen(path) is the word that the command line or the file gives for a setting.
  ConfigPtr (*defaults)(const std::function<std::string(const std::string& path)>& chosen);
  OptimizerConfig (*optimizer_defaults)(const CommonConfig& config, const std::string& name);
  // Why the program does not read a setting now, "" when it does.
  std::string (*unread)(const CommonConfig& config, const Setting& setting);
  void (*check)(const CommonConfig& config);  // throws where settings cannot be together
  TaskMaker (*load)(const std::shared_ptr<const CommonConfig>& config, Progress* progress);  // null: says nothing
};

ConfigPtr default_config(const Program& program);  // with nothing chosen

// JSON that gives the same configuration through --config; holds the keys that are read, no others. Without the run
// directory it is that of another run, which needs a folder of its own.
std::string to_json(const Program& program, const CommonConfig& config, bool with_run_dir = true);

// Aligned lines for the start of a run: the configuration by group, then `extra` rows.
std::string summary(const Program& program, const CommonConfig& config, const Rows& extra = {});

}  // namespace godwit::apps
