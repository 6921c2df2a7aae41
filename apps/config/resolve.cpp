// Assignments to a configuration: layers, and the checks that need more than one option.
#include <algorithm>
#include <utility>

#include "apps/config/assignments.h"
#include "comm/transport/launcher.h"
#include "comm/transport/mpi.h"
#include "engine/device.h"
#include "engine/did_you_mean.h"
#include "engine/excerpt.h"

namespace godwit::apps {
namespace {

const Assignment* last(const Assignments& layer, const std::string& option) {
  for (auto a = layer.rbegin(); a != layer.rend(); ++a)
    if (a->option == option) return &*a;
  return nullptr;
}

// The text that a layer gives for an option with choices; "" if it gives none. Throws for a text that is not a choice.
std::string chosen(const Program& program, const Assignments& layer, const std::string& option) {
  const Assignment* a = last(layer, option);
  if (!a) return "";
  const ConfigPtr config = default_config(program);
  const OptionList list = config->options();
  assign(*list.find(option), a->value, a->subject);
  return value_text(*list.find(option));  // of a method: its name, for an alias too
}

// Why the options of a file are not used: what the command line chooses instead. "" if they are used.
using Replaced = std::function<std::string(const Assignment& a)>;

Replaced replaced_parts(const Program& program, const Assignments& file, const Assignments& command) {
  const auto other = [&](const std::string& group) -> std::string {  // another method on the command line
    const std::string name = chosen(program, command, group + ".name"), before = chosen(program, file, group + ".name");
    return name.empty() || before.empty() || name == before ? "" : name;
  };
  const std::string optimizer = other("optimizer"), exchange = other("exchange"), schedule = other("schedule");
  const bool no_exchange = !optimizer.empty() && find_method<OptimizerMethod>(optimizer).communicates_itself;
  return [=](const Assignment& a) -> std::string {
    const bool of_exchange = a.option.starts_with("exchange.");
    if (of_exchange && no_exchange) return "optimizer " + optimizer + ", which communicates itself";
    if (of_exchange && !exchange.empty()) return "exchange " + exchange;
    if (a.section == "optimizer" && !optimizer.empty()) return "optimizer " + optimizer;
    if (a.section == "schedule" && !schedule.empty()) return "schedule " + schedule;
    return "";
  };
}

// The option in `list`; throws if the configuration does not read it.
const Option& applicable(const OptionList& list, const CommonConfig& config, const Assignment& a) {
  const Option* option = list.find(a.option);
  if (option && option->inapplicable.empty()) return *option;
  if (option) fail(a.subject, ": ", option->inapplicable);
  const bool of_exchange = a.option.starts_with("exchange.");  // otherwise an option of another optimizer
  check(!of_exchange || !config.optimizer.method().communicates_itself, a.subject, ": ", config.optimizer.name(),
        " communicates itself and takes no exchange; leave it out");
  fail(a.subject, ": ", of_exchange ? "the exchange " + config.exchange.name() : config.optimizer.name(),
       " does not read ", a.option, "; its keys are ",
       excerpts(of_exchange ? config.exchange.list().names() : config.optimizer.list().names(), 50));
}

// The last nonzero warm-up replaces one that was given in another unit.
void keep_one_warmup(ScheduleConfig& schedule, const std::string& option) {
  const ScheduleConfig given = schedule;
  const bool epochs = option == "schedule.warmup_epochs" && given.warmup_epochs > 0;
  const bool fraction = option == "schedule.warmup_fraction" && given.warmup_fraction > 0;
  const bool steps = option == "schedule.warmup_steps" && given.warmup_steps > 0;
  if (!epochs && !fraction && !steps) return;
  schedule.warmup_epochs = epochs ? given.warmup_epochs : 0;
  schedule.warmup_fraction = fraction ? given.warmup_fraction : 0;
  schedule.warmup_steps = steps ? given.warmup_steps : 0;
}

void check_together(const CommonConfig& c) {
  const std::vector<double>& milestones = c.schedule.milestones;
  for (size_t i = 1; i < milestones.size(); ++i)
    check(milestones[i] > milestones[i - 1], "schedule.milestones must ascend, but ", milestones[i], " follows ",
          milestones[i - 1]);
  check(!c.cuda_graph || c.device != "cpu",
        "cuda_graph: passes are captured on a GPU, and the device is cpu; leave it out, or use --device cuda");
  check(!c.cuda_graph || c.exchange.sharding != Sharding::zero2,
        "cuda_graph: with exchange.sharding zero2, gradients move in memory, which a captured pass cannot follow; use ",
        "zero1, or leave cuda_graph out");
  const int64_t workers = static_cast<int64_t>(c.nodes) * c.workers_per_node;
  check(workers <= 1024 || uses_mpi(c), "--nodes ", c.nodes, " --workers-per-node ", c.workers_per_node, ": ", workers,
        " workers, but one process holds at most 1024");
}

// Under a launcher, nodes and workers_per_node follow from the number of started processes unless they are given. Both
// stay 0 if the hosts are to decide.
void fit_launcher(CommonConfig& c, bool nodes_given, bool workers_given) {
  const std::optional<Launcher> launched = launcher();
  if (!uses_mpi(c)) {
    check(!launched || launched->world == 1, "transport local: ", launched->name, " started ", launched->world,
          " processes, which would each train by themselves; start a single process, or set transport=auto");
    return;
  }
  check(launched.has_value(), "transport mpi: no launcher started this process; start it with mpirun or srun");
  check(mpi_built(), launched->name, " started this process, but this build has no MPI: install it (Debian: ",
        "libopenmpi-dev, openmpi-bin) and build again");
  const Topology topology =
      fit_topology({nodes_given ? c.nodes : 0, workers_given ? c.workers_per_node : 0}, launched->world);
  c.nodes = topology.nodes;
  c.workers_per_node = topology.workers_per_node;
}

}  // namespace

ConfigPtr default_config(const Program& program) {
  ConfigPtr config = program.defaults([](const std::string&) { return std::string(); });
  config->optimizer = program.optimizer_defaults(*config, program.default_optimizer);
  return config;
}

KnownOptions::KnownOptions(const Program& program) : config_(default_config(program)), list_(config_->options()) {
  const auto add = [&](const OptionList& options, const std::string& group, const std::string& section) {
    for (Option option : options) {
      option.name = group + option.name, option.section = section;
      if (!list_.find(option.name)) list_.push_back(option);
    }
  };
  for (const OptimizerMethod* method : methods<OptimizerMethod>())
    add(method->defaults.list(), "optimizer.", "optimizer");
  for (const ExchangeMethod* method : methods<ExchangeMethod>()) add(method->defaults.list(), "exchange.", "workers");
}

bool KnownOptions::is_group(const std::string& name) const {
  return std::any_of(list_.begin(), list_.end(), [&](const Option& o) { return o.name.starts_with(name + "."); });
}

const Option* KnownOptions::short_form(const std::string& group) const {
  const Option* name = list_.find(group + ".name");
  return name ? name : list_.find(group + ".path");
}

void KnownOptions::fail_unknown(const std::string& subject, const std::string& name) const {
  const auto last_part = [](const std::string& path) { return path.substr(path.rfind('.') + 1); };  // npos + 1 is 0
  for (const Option& option : list_)
    if (last_part(option.name) == last_part(name) && last_part(name) != "name")
      fail(subject, ": no such key '", excerpt(name), "'; did you mean '", option.name, "'?");
  const std::string best = nearest(name, list_.names());
  fail(subject, ": no such key '", excerpt(name), "'",
       best.empty() ? "; --help and --print-config list the keys" : "; did you mean '" + best + "'?");
}

ConfigPtr resolve(const Program& program, const Assignments& file, const Assignments& command) {
  const Replaced replaced = replaced_parts(program, file, command);
  Assignments layers;
  std::vector<std::pair<std::string, std::string>> ignored;  // what the command line chooses, the keys that it replaces
  std::string name_of_file;
  const auto ignore = [&](const Assignment& a, const std::string& by) {
    name_of_file = a.subject.substr(0, a.subject.rfind(": "));
    const auto same = [&](const auto& entry) { return entry.first == by; };
    const auto found = std::find_if(ignored.begin(), ignored.end(), same);
    if (found == ignored.end()) ignored.emplace_back(by, a.option);
    else found->second.append(", ").append(a.option);
  };
  for (const Assignment& a : file) {
    const std::string by = replaced(a);
    if (by.empty()) layers.push_back(a);
    if (by.empty() || (a.option.ends_with(".name") && (a.option != "exchange.name" || by.starts_with("exchange"))))
      continue;
    ignore(a, by);
  }
  layers.insert(layers.end(), command.begin(), command.end());

  const auto lookup = [&](const std::string& option) { return chosen(program, layers, option); };
  const ConfigPtr made = program.defaults(lookup);
  CommonConfig& config = *made;
  const std::string optimizer = lookup("optimizer.name");
  config.optimizer = program.optimizer_defaults(config, optimizer.empty() ? program.default_optimizer : optimizer);
  if (last(layers, "exchange.name")) config.exchange = lookup("exchange.name");
  if (last(layers, "schedule.name")) config.schedule.name = lookup("schedule.name");
  const OptionList list = config.options();
  // Options of the file's model that another model on the command line does not read.
  const std::string model = last(command, "model.name") ? "model " + chosen(program, command, "model.name") : "";
  const auto of_other_model = [&](const Assignment& a) {
    const Option* option = list.find(a.option);
    return a.option.starts_with("model.") && option && !option->inapplicable.empty();
  };
  for (const Assignment& a : file)
    if (!model.empty() && of_other_model(a)) ignore(a, model);
  const auto first_of_command = std::prev(layers.end(), std::ssize(command));
  if (!model.empty())
    layers.erase(std::remove_if(layers.begin(), first_of_command, of_other_model), first_of_command);
  std::string notice;
  for (const auto& [by, keys] : ignored)
    notice +=
        (notice.empty() ? name_of_file + ": not used: " : "; ") + keys + ", because the command line chooses " + by;
  if (!notice.empty()) config.notices.push_back(notice);

  for (const Assignment& a : layers) {
    const Option& option = applicable(list, config, a);
    if (a.option == "optimizer.name" || a.option == "exchange.name") {
      chosen(program, {a}, a.option);  // checks the name; an assignment would reset the method's options
      continue;
    }
    assign(option, a.value, a.subject);
    keep_one_warmup(config.schedule, a.option);
  }
  config.optimizer.check_values();
  if (!config.optimizer.method().communicates_itself) config.exchange.check_values();
  if (config.device == "auto") config.device = cuda_devices() > 0 ? "cuda" : "cpu";
  // A launcher may continue a run with another number of workers than its config.json says; with the same number, the
  // nodes are those of config.json.
  const std::optional<Launcher> launched = launcher();
  const bool same_workers = launched && int64_t{config.nodes} * config.workers_per_node == launched->world;
  const Assignments& given = config.resume.empty() || same_workers ? layers : command;
  fit_launcher(config, last(given, "nodes"), last(given, "workers_per_node"));
  check_together(config);
  config.check_together();
  return made;
}

}  // namespace godwit::apps
