// Applies layers of assignments to a configuration and checks combinations of options.
#include <algorithm>

#include "apps/config/assignments.h"
#include "apps/config/pick_sharding.h"
#include "engine/did_you_mean.h"
#include "engine/excerpt.h"
#include "optim/data_parallel.h"

namespace godwit::apps {
namespace {

const Assignment* last(const Assignments& layer, const std::string& option) {
  for (auto a = layer.rbegin(); a != layer.rend(); ++a)
    if (a->option == option) return &*a;
  return nullptr;
}

ConfigPtr defaults_of(const Program& program, const Lookup& lookup) {
  ConfigPtr config = program.defaults(lookup);
  config->program = program.name;
  return config;
}

// The text that a layer gives for an option with choices; "" if it gives none. Throws for a text that is not a choice.
std::string chosen(const Program& program, const Assignments& layer, const std::string& option) {
  const Assignment* a = last(layer, option);
  if (!a) return "";
  const ConfigPtr config = default_config(program);
  const OptionList list = config->options();
  assign(*list.find(option), a->value, a->subject);
  return value_text(*list.find(option));  // the name of a method that was given by an alias
}

// The assignments of a file, without those that another method or model on the command line replaces.
struct FileLayer {
  Assignments assignments;
  const Assignments& command;
  std::string notice = {};  // names the options that are left out, except those on the command line

  template <class Predicate>
  void leave_out(const Predicate& replaced, const std::string& choice) {
    std::string keys, file;
    std::erase_if(assignments, [&](const Assignment& a) {
      if (!replaced(a)) return false;
      file = a.subject.substr(0, a.subject.rfind(": "));
      if (!last(command, a.option)) keys.append(keys.empty() ? "" : ", ").append(a.option);
      return true;
    });
    if (keys.empty()) return;
    notice += (notice.empty() ? file + ": not used: " : "; ") + keys + ", because the command line chooses " + choice;
  }
  void leave_out_group(const std::string& group, const std::string& choice) {
    leave_out([&](const Assignment& a) { return a.option.starts_with(group + "."); }, choice);
  }
};

// The method of a group if no layer names it.
std::string default_name(const Program& program, const std::string& group) {
  if (group == "optimizer") return program.default_optimizer;
  const ConfigPtr config = default_config(program);
  const OptionList list = config->options();
  return value_text(*list.find(group + ".name"));
}

FileLayer without_replaced_methods(const Program& program, const Assignments& file, const Assignments& command) {
  FileLayer kept{file, command};
  for (const std::string group : {"optimizer", "exchange", "schedule"}) {
    const std::string name = chosen(program, command, group + ".name");
    std::string before = chosen(program, kept.assignments, group + ".name");
    if (before.empty()) before = default_name(program, group);
    if (name.empty() || name == before) continue;
    kept.leave_out_group(group, group + " " + name);
    // clip.norm is 0 with signs.
    const auto are_signs = [](const std::string& one) { return find_method<ExchangeMethod>(one).mean_is_signs; };
    const auto is_clip = [](const Assignment& a) { return a.option == "clip.norm"; };
    if (group == "exchange" && are_signs(name) != are_signs(before)) kept.leave_out(is_clip, "exchange " + name);
    if (group == "optimizer" && find_method<OptimizerMethod>(name).communicates_itself) {
      const std::string source = "optimizer " + name + ", which communicates itself";
      if (const std::string exchange = chosen(program, kept.assignments, "exchange.name");
          !exchange.empty() && are_signs(exchange))
        kept.leave_out(is_clip, source);
      kept.leave_out_group("exchange", source);
    }
  }
  return kept;
}

// Whether a default of the group model, such as the number of layers, differs between two models.
bool have_other_sizes(const Program& program, const std::string& a, const std::string& b) {
  const auto defaults = [&](const std::string& model) {
    return program.defaults([model](const std::string& o) { return o == "model.name" ? model : std::string(); });
  };
  const ConfigPtr config_a = defaults(a), config_b = defaults(b);
  const OptionList list_a = config_a->options(), list_b = config_b->options();
  return std::any_of(list_a.begin(), list_a.end(), [&](const Option& option) {
    const Option* other = list_b.find(option.name);
    return option.name.starts_with("model.") && option.name != "model.name" && other &&
           value_text(option) != value_text(*other);
  });
}

void apply(const Program& program, const Assignments& layers, CommonConfig& config) {
  const KnownOptions known(config);
  const Assignment* warmup = nullptr;  // the last nonzero one
  const auto source = [](const Assignment& a) { return a.subject.substr(0, a.subject.rfind(": ")); };
  for (const Assignment& a : layers) {
    const Option& option = *known.list().find(a.option);
    check(option.inapplicable.empty(), a.subject, ": ", option.inapplicable);
    if (a.option == "optimizer.name" || a.option == "exchange.name") {
      chosen(program, {a}, a.option);  // checks the name; an assignment would reset the method's options
      continue;
    }
    assign(option, a.value, a.subject);
    // The last nonzero warm-up replaces warm-ups in other units.
    const std::string units[] = {"schedule.warmup_steps", "schedule.warmup_epochs", "schedule.warmup_fraction"};
    if (std::find(std::begin(units), std::end(units), a.option) == std::end(units) || value_text(option) == "0")
      continue;
    // The keys of one JSON object have no order.
    check(!warmup || warmup->option == a.option || source(*warmup) != source(a), source(a), ": gives ", warmup->option,
          " and ", a.option, ", but one warm-up has one length; leave one of them out");
    warmup = &a;
    for (const std::string& other : units)
      if (other != a.option) assign(*known.list().find(other), text_value("0"), other);
  }
}

void check_together(const CommonConfig& c) {
  c.optimizer.check_values();
  if (c.exchange.sharding == Sharding::automatic) {
    check_sharding(c.optimizer, c.exchange.sharding);
  } else {
    DataParallelOptions options{.optimizer = c.optimizer, .exchange = c.exchange};
    options.clip_norm = c.clip.norm;
    check_sharding(options);
  }
  c.exchange.check_values();
  c.schedule.check();
  if (const std::string& best = c.checkpoint.best; c.validation > 0 && best.starts_with("test_"))
    fail("checkpoint.best is ", best, ", but with validation it is named validation_", best.substr(5));
  check(!c.cuda_graph || c.device != "cpu",
        "cuda_graph: passes are captured on a GPU, but the device is cpu; leave cuda_graph out, or use --device cuda");
  check(!c.cuda_graph || !shards_gradients(c.exchange.sharding), "cuda_graph: with exchange.sharding ",
        c.exchange.text("sharding"), ", gradients move in memory, which a captured pass cannot follow; use zero1");
  c.check_together();
}

// Names options with values other than the defaults that the configuration does not read; "" if there are none. Values
// of options with `ignored` come from the file, because the command line refuses them.
std::string notice_of_unused(const CommonConfig& config, const CommonConfig& defaults) {
  const OptionList list = config.options(), usual = defaults.options();
  std::string notice;
  const auto add = [&](const std::vector<std::string>& names, const std::string& reason) {
    std::string changed;
    for (const std::string& name : names)
      if (value_text(*list.find(name)) != value_text(*usual.find(name)))
        changed += (changed.empty() ? "" : ", ") + name;
    if (!changed.empty()) notice += (notice.empty() ? "not used: " : "; ") + changed + ", because " + reason;
  };
  if (config.device == "cpu") add({"share_gpu", "tf32", "dnn_timing"}, "the device is cpu");
  if (config.schedule.warmup_epochs == 0 && config.schedule.warmup_fraction == 0 && config.schedule.warmup_steps == 0)
    add({"schedule.warmup_power", "schedule.warmup_start"}, "there is no warm-up");
  if (config.spike.guard == "off") add({"spike.z", "spike.window"}, "spike.guard is off");
  for (const Option& option : list)
    if (!option.ignored.empty() && usual.find(option.name)) add({option.name}, option.ignored);
  return notice;
}

}  // namespace

ConfigPtr default_config(const Program& program) {
  ConfigPtr config = defaults_of(program, [](const std::string&) { return std::string(); });
  config->optimizer = program.optimizer_defaults(*config, program.default_optimizer);
  return config;
}

KnownOptions::KnownOptions(const CommonConfig& config) : list_(config.options()) {
  const auto add_others = [&]<class Method>(const MethodConfig<Method>& selected, const std::string& group) {
    const Option name = *list_.find(group + ".name");
    const std::string what = (group == "exchange" ? "the exchange " : "") + selected.name();
    const std::string keys = excerpts(selected.list().names(), 50);
    for (const Method* method : methods<Method>())
      for (Option option : method->defaults.list()) {
        option.name = group + "." + option.name, option.section = name.section;
        option.inapplicable = name.inapplicable;  // the optimizer takes no exchange
        option.only_if(false, what + " does not read " + option.name + "; its keys are " + keys);
        if (!list_.find(option.name)) list_.push_back(option);
      }
  };
  add_others(config.optimizer, "optimizer");
  add_others(config.exchange, "exchange");
}

bool KnownOptions::is_group(const std::string& name) const {
  return std::any_of(list_.begin(), list_.end(), [&](const Option& o) { return o.name.starts_with(name + "."); });
}

const Option& KnownOptions::at(const std::string& subject, const std::string& name, const OptionValue& value) const {
  if (const Option* option = list_.find(name)) return *option;
  std::vector<std::string> keys;  // of the group
  for (const Option& option : list_)
    if (option.name.starts_with(name + ".")) keys.push_back(option.name);
  const Option *of_name = list_.find(name + ".name"), *text = of_name ? of_name : list_.find(name + ".path");
  if (text && std::holds_alternative<std::string>(value.data)) return *text;
  check(keys.empty(), subject, ": ", name, " expects an object", text ? " or a text" : "", ", got ", value.shown,
        "; it is the group of ", excerpts(keys, 10));
  const auto last_part = [](const std::string& path) { return path.substr(path.rfind('.') + 1); };  // npos + 1 is 0
  for (const Option& option : list_)
    if (last_part(option.name) == last_part(name) && last_part(name) != "name")
      fail(subject, ": no such key '", excerpt(name), "'; did you mean '", option.name, "'?");
  std::vector<std::string> candidates;  // also the groups
  for (const Option& option : list_) {
    candidates.push_back(option.name.substr(0, option.name.find('.')));
    candidates.push_back(option.name);
  }
  const std::string best = nearest(name, candidates);
  fail(subject, ": no such key '", excerpt(name), "'",
       best.empty() ? "; --help and --print-config list the keys" : "; did you mean '" + best + "'?");
}

ConfigPtr resolve(const Program& program, const Assignments& file, const Assignments& command) {
  FileLayer kept = without_replaced_methods(program, file, command);
  const auto layers = [&] {
    Assignments all = kept.assignments;
    all.insert(all.end(), command.begin(), command.end());
    return all;
  };
  const auto lookup = [&](const std::string& option) { return chosen(program, layers(), option); };
  ConfigPtr made = defaults_of(program, lookup);
  const std::string model = chosen(program, command, "model.name");
  // With another model or other weights, some model options of the file do not apply, such as the sizes of the model.
  if (!model.empty() || last(command, "init_weights")) {
    const OptionList list = made->options();
    const std::string before = chosen(program, file, "model.name");
    const bool resized = !model.empty() && !before.empty() && have_other_sizes(program, before, model);
    const auto of_other_model = [&](const Assignment& a) {
      const Option* option = list.find(a.option);
      return a.option.starts_with("model.") && option && (resized || !option->inapplicable.empty());
    };
    kept.leave_out(of_other_model, model.empty() ? "initial weights" : "model " + model);
    made = defaults_of(program, lookup);
  }
  CommonConfig& config = *made;
  const std::string optimizer = lookup("optimizer.name"), exchange = lookup("exchange.name");
  const std::string schedule = lookup("schedule.name");
  config.optimizer = program.optimizer_defaults(config, optimizer.empty() ? program.default_optimizer : optimizer);
  if (!exchange.empty()) config.set_exchange(exchange);
  if (config.exchange.method().mean_is_signs) config.clip.norm = 0;  // clipping is refused
  const std::string sharding = lookup("exchange.sharding");  // some options apply only with hybrid or auto
  if (sharding == "hybrid") config.exchange.sharding = Sharding::hybrid;
  if (sharding == "auto") config.exchange.sharding = Sharding::automatic;
  if (!schedule.empty()) config.schedule.name = schedule;
  if (!kept.notice.empty()) config.notices.push_back(kept.notice);
  apply(program, layers(), config);
  // A launcher may continue a run with another number of workers than its config.json says.
  const Assignments given = config.resume.empty() || config.fits_launcher() ? layers() : command;
  config.resolve(last(given, "nodes"), last(given, "workers_per_node"));
  if (const std::string notice = notice_of_unused(config, *default_config(program)); !notice.empty())
    config.notices.push_back(notice);
  pick_sharding(config);
  check_together(config);
  const OptionList options = config.options();
  for (const Assignment& a : command)
    if (const Option* option = options.find(a.option)) check(option->ignored.empty(), a.subject, ": ", option->ignored);
  return made;
}

}  // namespace godwit::apps
