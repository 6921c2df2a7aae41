#include "apps/config/resolve.h"

#include <utility>

#include "comm/transport/launcher.h"
#include "comm/transport/mpi.h"
#include "engine/check.h"
#include "engine/device.h"

namespace godwit::apps {
namespace {

const Assignment* last(const std::vector<Assignment>& layer, const std::string& path) {
  for (auto a = layer.rbegin(); a != layer.rend(); ++a)
    if (a->setting->path == path) return &*a;
  return nullptr;
}

// The word a layer chooses for `path`; "" when it leaves it open. Throws for a word that does not exist.
std::string word_of(const Program& program, const std::vector<Assignment>& layer, const std::string& path) {
  const Assignment* a = last(layer, path);
  if (!a) return "";
  const ConfigPtr config = default_config(program);
  assign(*config, *a);
  return value_text(*config, *a->setting);
}

std::string without_alias(const std::string& optimizer) { return optimizer == "binsgdm" ? "birder" : optimizer; }

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? "" : ", ").append(word);
  return text;
}

void check_applies(const Program& program, const CommonConfig& config, const Assignment& a) {
  if (applies(program, config, *a.setting)) return;
  if (const std::string reason = program.unread(config, *a.setting); !reason.empty()) fail(a.subject, ": ", reason);
  if (a.setting->path.starts_with("exchange.")) {
    check(!communicates_itself(config.optimizer.name) || a.setting->path != "exchange.sharding", a.subject, ": ",
          config.optimizer.name, " keeps state of all parameters on every worker, which no sharding divides; leave it ",
          "out, or take an optimizer behind an exchange, as adamw");
    check(!communicates_itself(config.optimizer.name), a.subject, ": ", config.optimizer.name,
          " communicates itself and takes no exchange; leave it out");
    fail(a.subject, ": the exchange ", config.exchange.name, " does not read ", a.setting->path, "; its keys are ",
         listed(exchange_keys(config.exchange.name)));
  }
  const bool optimizer = a.setting->section == "optimizer";
  const std::string& name = optimizer ? config.optimizer.name : config.schedule.name;
  fail(a.subject, ": ", name, " does not read ", a.setting->path, "; its keys are ",
       listed(optimizer ? optimizer_keys(name) : schedule_keys(name)));
}

// The warm-up that is given last, unless as 0, replaces one given in another unit.
void keep_one_warmup(ScheduleConfig& schedule, const std::string& path) {
  const ScheduleConfig given = schedule;
  const bool epochs = path == "schedule.warmup_epochs" && given.warmup_epochs > 0;
  const bool fraction = path == "schedule.warmup_fraction" && given.warmup_fraction > 0;
  const bool steps = path == "schedule.warmup_steps" && given.warmup_steps > 0;
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
        "cuda_graph: passes are recorded on a GPU, and the device is cpu; leave it out, or take --device cuda");
  check(!c.cuda_graph || c.exchange.sharding != "zero2",
        "cuda_graph: with exchange.sharding zero2 gradients change their place, which no recorded pass follows; ",
        "take zero1, or leave cuda_graph out");
  const int64_t workers = static_cast<int64_t>(c.nodes) * c.workers_per_node;
  check(workers <= 1024 || uses_mpi(c), "--nodes ", c.nodes, " --workers-per-node ", c.workers_per_node, ": ", workers,
        " workers, but one process holds at most 1024");
}

// Under a launcher the workers are what it started: nodes and workers_per_node follow from their number where they are
// not given. Both stay 0 when the hosts are to decide.
void fit_launcher(CommonConfig& c, bool nodes_given, bool workers_given) {
  const std::optional<Launcher> launched = launcher();
  if (!uses_mpi(c)) {
    check(!launched || launched->world == 1, "transport local: ", launched->name, " started ", launched->world,
          " processes, which would each train by themselves; start one, or leave the transport to be chosen");
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

bool uses_mpi(const CommonConfig& config) {
  return config.transport == "mpi" || (config.transport == "auto" && under_launcher());
}

ConfigPtr resolve(const Program& program, const std::vector<Assignment>& file, const std::vector<Assignment>& command) {
  const auto chosen = [&](const std::vector<Assignment>& layer, const std::string& path) {
    return word_of(program, layer, path);
  };
  const std::string in_file = chosen(file, "optimizer.name"), on_command = chosen(command, "optimizer.name");
  const std::string schedule_in_file = chosen(file, "schedule.name"), schedule = chosen(command, "schedule.name");
  const bool other_optimizer =
      !in_file.empty() && !on_command.empty() && without_alias(in_file) != without_alias(on_command);
  const bool other_schedule = !schedule_in_file.empty() && !schedule.empty() && schedule_in_file != schedule;

  const std::string exchange_in_file = chosen(file, "exchange.name"), exchange = chosen(command, "exchange.name");
  const bool other_exchange = !exchange_in_file.empty() && !exchange.empty() && exchange_in_file != exchange;
  const bool no_exchange = other_optimizer && communicates_itself(on_command);

  std::vector<Assignment> layers;
  std::vector<std::string> notices;
  for (const Assignment& a : file) {
    const std::string &section = a.setting->section, &path = a.setting->path;
    std::string replaced;  // what the command line has in place of it
    if (path.starts_with("exchange.")) {
      if (no_exchange) replaced = "optimizer " + on_command + ", which communicates itself";
      else if (other_exchange) replaced = "exchange " + exchange;
    } else if (section == "optimizer" && other_optimizer) {
      replaced = "optimizer " + on_command;
    } else if (section == "schedule" && other_schedule) {
      replaced = "schedule " + schedule;
    }
    if (replaced.empty()) layers.push_back(a);
    else if (path != "optimizer.name" && path != "schedule.name" && (no_exchange || path != "exchange.name"))
      notices.push_back(a.subject + "=" + a.value.shown + " is not used: the command line chooses " + replaced);
  }
  layers.insert(layers.end(), command.begin(), command.end());

  const ConfigPtr made = program.defaults([&](const std::string& path) { return chosen(layers, path); });
  CommonConfig& config = *made;
  config.notices = std::move(notices);
  const std::string optimizer = chosen(layers, "optimizer.name");
  config.optimizer = program.optimizer_defaults(config, optimizer.empty() ? program.default_optimizer : optimizer);
  if (last(layers, "exchange.name")) config.exchange = exchange_defaults(chosen(layers, "exchange.name"));
  if (last(layers, "schedule.name")) config.schedule.name = chosen(layers, "schedule.name");
  for (const Assignment& a : layers) {
    check_applies(program, config, a);
    assign(config, a);
    keep_one_warmup(config.schedule, a.setting->path);
  }
  if (communicates_itself(config.optimizer.name)) config.exchange.name.clear();
  else check_sharding(config.exchange);
  if (config.device == "auto") config.device = cuda_devices() > 0 ? "cuda" : "cpu";
  fit_launcher(config, last(layers, "nodes"), last(layers, "workers_per_node"));
  check_together(config);
  program.check(config);
  return made;
}

}  // namespace godwit::apps
