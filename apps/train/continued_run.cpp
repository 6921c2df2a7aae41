#include "apps/train/continued_run.h"

#include <algorithm>
#include <set>

#include "apps/config/program.h"
#include "apps/config/saved_config.h"
#include "apps/train/measured_options.h"
#include "engine/excerpt.h"
#include "engine/json-inl.h"

namespace godwit::apps {
namespace {

// config.json of the run that `config` continues; null if it continues none.
nlohmann::json continued_config(const CommonConfig& config) {
  const std::string text = saved_config(config);
  return text.empty() ? nlohmann::json() : parse_json(text);
}

// Samples of a step, in total: workers * batch * accumulation.
struct Samples {
  int64_t workers, batch, accumulation;
};

// Changes accumulation or batch so that `now` workers keep the saved number of samples per step, and of streams.
// Returns a notice.
std::string keep_samples(CommonConfig& config, const Samples& saved, int64_t now) {
  const int64_t streams = saved.workers * saved.batch, samples = streams * saved.accumulation;
  const bool keeps_streams = config.samples_are_streams();
  if (samples == now * config.batch * config.accumulation && (!keeps_streams || streams == now * config.batch))
    return "";
  const auto check_divides = [&](int64_t total, const char* unit) {
    check(total % now == 0, "the run in ", config.run_dir, " has ", total, unit, ", which ", now,
          " workers cannot divide equally; continue with a number of workers that divides ", total);
  };
  if (keeps_streams) {
    check_divides(streams, " streams of text");
    config.batch = streams / now, config.accumulation = static_cast<int>(saved.accumulation);
  } else {
    check_divides(samples, " samples per step");
    const int64_t of_worker = samples / now;
    if (of_worker % config.batch == 0) config.accumulation = static_cast<int>(of_worker / config.batch);
    else if (of_worker % config.accumulation == 0) config.batch = of_worker / config.accumulation;
    else config.batch = of_worker, config.accumulation = 1;
  }
  const std::string workers = detail::concat(now, now == 1 ? " worker" : " workers");
  return detail::concat(workers, saved.workers == now ? "" : detail::concat(" instead of ", saved.workers), ": batch ",
                        config.batch, " and accumulation ", config.accumulation, " keep ", samples,
                        " samples per step");
}

// Options of a configuration by JSON pointer: {"/model/n_head": 4}. Unlike flatten(), keeps lists whole.
nlohmann::json flattened(const nlohmann::json& config, const std::string& prefix = "") {
  nlohmann::json options = nlohmann::json::object();
  for (const auto& [name, value] : config.items())
    if (const std::string pointer = prefix + "/" + name; value.is_object()) options.update(flattened(value, pointer));
    else options[pointer] = value;
  return options;
}

nlohmann::json options_of(const CommonConfig& config) {
  return flattened(parse_json(to_json(config, /*with_run_dir=*/false)));
}

// Whether an option determines the function of the network. Other options of the model act on training only.
bool is_of_network(const std::string& pointer) {
  constexpr const char* kOfTraining[] = {"dropout",    "recompute",      "sync_bn", "aux_loss", "zero_init_residual",
                                         "init_range", "recurrent_range"};
  const auto contains = [&](const char* name) { return pointer.find(name) != std::string::npos; };
  return pointer == "/task" || (pointer.starts_with("/model/") && std::ranges::none_of(kOfTraining, contains));
}

std::set<std::string> names_of_network(const nlohmann::json& options) {
  std::set<std::string> names;
  for (const auto& [pointer, value] : options.items())
    if (is_of_network(pointer)) names.insert(pointer);
  return names;
}

// Replaces model.name=auto by the network that it selects, if there are no initial weights.
void resolve_name(nlohmann::json& options, const CommonConfig& config) {
  const std::string name = "/model/name", weights = "/init_weights";
  if (options.contains(name) && options.at(name) == "auto" && options.contains(weights) && options.at(weights) == "")
    options[name] = config.automatic_network();
}

// "model.n_head 4 (was 2)"
std::string change(const std::string& pointer, const nlohmann::json& before, const nlohmann::json& now) {
  std::string name = pointer.substr(1);
  std::replace(name.begin(), name.end(), '/', '.');
  return name + " " + excerpt(dump_json(now.at(pointer))) + " (was " + excerpt(dump_json(before.at(pointer))) + ")";
}

}  // namespace

void check_same_network(const CommonConfig& config) {
  const std::string text = config_in_run_dir(config);
  if (text.empty()) return;
  nlohmann::json before = flattened(parse_json(text)), now = options_of(config);
  resolve_name(before, config), resolve_name(now, config);
  std::string changes;
  const auto add = [&](const std::string& one) { changes += (changes.empty() ? "" : ", ") + one; };
  const std::set<std::string> names = names_of_network(now);
  for (const std::string& name : names)
    if (before.contains(name) && before.at(name) != now.at(name)) add(change(name, before, now));
  // If initial weights determine the sizes, these are no options. Options of another version may be missing, too.
  const std::string weights = "/init_weights";
  const bool differ = !changes.empty() || names != names_of_network(before);
  if (differ && before.contains(weights) && (before.at(weights) == "") != config.init_weights.empty())
    add(change(weights, before, now));
  check(changes.empty(), saved_config_path(config), ": is of a run with another network: ", changes,
        "; use the values of that run, or start a new run in another folder");
}

std::string keep_samples_per_step(CommonConfig& config, int64_t now) {
  const nlohmann::json saved = continued_config(config);
  if (saved.is_null()) return "";
  const std::string path = saved_config_path(config);
  constexpr int64_t kMost = 1 << 20;  // so that products of three numbers do not overflow
  const auto number = [&](const char* name) -> int64_t {
    check(saved.is_object() && saved.contains(name) && saved.at(name).is_number_integer() && saved.at(name) >= 1 &&
              saved.at(name) <= kMost,
          path, ": has no positive whole number \"", name, "\"");
    return saved.at(name).get<int64_t>();
  };
  const int64_t before = number("nodes") * number("workers_per_node"), batch = number("batch");
  check(before <= kMost, path, ": has ", before, " workers; expected at most ", kMost);
  std::string notice;
  // With --resume auto, a launcher repeats the command of the first start, also if config.json has been adapted before.
  if (before != now || config.resume == "auto")
    notice = keep_samples(config, {before, batch, number("accumulation")}, now);
  check(!config.samples_are_streams() || before != now || config.batch == batch, "--batch is ", config.batch, " (was ",
        batch, "): the run in ", config.run_dir, " continues the streams of text of its workers; resume with --batch ",
        batch, ", or start a new run");
  return notice;
}

void keep_picked_options(CommonConfig& config) {
  if (!measures(config)) return;
  const OptionList list = config.options();
  const auto keep = [&](const std::string& group, const std::string& name) {
    const std::string value = saved_option(config, group, name);
    if (!value.empty())
      assign(*list.find(group + "." + name), text_value(value), saved_config_path(config) + ": " + group + "." + name);
  };
  if (config.bucket.mib == "auto") keep("bucket", "mib");
  if (picks_wire(config.exchange) && saved_option(config, "exchange", "name") == config.exchange.name())
    keep("exchange", "wire");
}

std::string notice_of_changes(const CommonConfig& config) {
  const nlohmann::json saved = continued_config(config);
  if (!saved.is_object()) return "";
  const nlohmann::json before = flattened(saved), now = options_of(config);
  std::string changes, effects;
  for (const auto& [pointer, value] : now.items()) {
    if (pointer == "/run_dir" || pointer == "/resume") continue;
    if (config.nodes == 0 && (pointer == "/nodes" || pointer == "/workers_per_node")) continue;  // not yet known
    if (!before.contains(pointer) || before.at(pointer) == value) continue;  // absent: of another method or version
    changes += (changes.empty() ? "" : ", ") + change(pointer, before, now);
    if (pointer == "/init_weights") effects += "; a resumed run has the parameters of its checkpoint instead";
    if (pointer == "/seed") effects += "; another seed changes the order of the data and the dropout masks";
  }
  return changes.empty() ? "" : "changed since the run was saved: " + changes + effects;
}

}  // namespace godwit::apps
