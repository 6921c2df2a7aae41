// Program: the parts that differ between training programs.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "apps/config/config.h"
#include "apps/report/rows.h"
#include "comm/group.h"

namespace godwit::apps {

class Progress;
class Task;

// Creates a rank's task from data that the ranks of a process share. Null if there is nothing to train. Collective.
using TaskMaker = std::function<std::unique_ptr<Task>(Communicator&)>;
using ConfigPtr = std::shared_ptr<CommonConfig>;  // points to the program's own type
// Returns the text that the command line or the file gives for an option; "" if neither gives one.
using Lookup = std::function<std::string(const std::string& option)>;

struct Program {
  std::string name;              // "train_resnet"
  std::string purpose, results;  // beginning and end of --help
  std::string default_optimizer;
  ConfigPtr (*defaults)(const Lookup& lookup);  // sets all options except the optimizer's
  OptimizerConfig (*optimizer_defaults)(const CommonConfig& config, const std::string& name);
  TaskMaker (*load)(const std::shared_ptr<const CommonConfig>& config, Progress* progress);  // progress: may be null
};

ConfigPtr default_config(const Program& program);

// The name of the program and the applicable options as JSON, which --config accepts. If with_run_dir is false, run_dir
// and resume are empty, so that a run with this configuration creates a new folder.
std::string to_json(const CommonConfig& config, bool with_run_dir = true);

// Aligned lines for the start of a run: the configuration by section, then the rows `extra`.
std::string summary(const CommonConfig& config, const Rows& extra = {});

}  // namespace godwit::apps
