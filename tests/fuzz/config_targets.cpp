// Configurations: JSON, command lines, HuggingFace's config.json, variables of a launcher, files of choices.
#include <cstdlib>
#include <sstream>

#include "apps/config/command_line.h"
#include "comm/transport/launcher.h"
#include "engine/choice_file.h"
#include "models/bert_config.h"
#include "models/gpt2_config.h"
#include "models/llama_config.h"
#include "tests/fuzz/target.h"

namespace godwit::fuzz {
namespace {

using namespace apps;

std::vector<std::string> lines_of(Input input, size_t most) {
  std::vector<std::string> lines;
  std::istringstream text{std::string(input.text())};
  for (std::string line; lines.size() < most && std::getline(text, line);) lines.push_back(line);
  return lines;
}

// The options of all programs, and two more.
struct SmallConfig : CommonConfig {
  void check_together() const override {}
  void describe(OptionList& list) override {
    list.section = "data", list.prefix = "data.";
    list.add("path", path, "folder").with_flag("--data", "DIR").differs_by_host();
    list.add("mean", mean, "per channel", kPositive);
    list.prefix = "";
    describe_common(list, {.unit = "samples", .eval_batch = "samples", .seed = "seed", .run_dir = "runs"});
  }
  std::string path;
  std::vector<double> mean;
};

const Program kProgram{
    .name = "fuzz",
    .purpose = "Reads options.",
    .results = "",
    .default_optimizer = "sgdm",
    .defaults = [](const Lookup&) -> ConfigPtr { return std::make_shared<SmallConfig>(); },
    .optimizer_defaults = [](const CommonConfig&, const std::string& name) { return OptimizerConfig(name); },
    .load = nullptr,
};

ConfigPtr parse(const std::vector<std::string>& words) {
  std::vector<const char*> argv = {"fuzz"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  std::ostringstream out;
  return parse_command_line(kProgram, static_cast<int>(argv.size()), argv.data(), out);
}

void check_printed(const ConfigPtr& config) {
  if (!config) return;  // --help, --print-config
  const std::string json = to_json(*config);
  const std::string path = file_of({{reinterpret_cast<const uint8_t*>(json.data()), json.size()}}, "printed.json");
  require(to_json(*parse({"--config", path})) == json, "a printed configuration is read again");
}

void config_json(Input input) { check_printed(parse({"--config", file_of(input)})); }

void command_line(Input input) { check_printed(parse(lines_of(input, 32))); }  // one argument per line

void bert_config(Input input) {
  const BertConfig config = read_bert_config(file_of(input));
  if (config.labels.size() > 1000) return;  // num_labels; writing a million names takes seconds
  write_bert_config(path_of("copy"), config, "BertModel");
  require(hash(read_bert_config(path_of("copy"))) == hash(config), "a configuration is read again");
}

void gpt2_config(Input input) {
  const Gpt2Config config = read_gpt2_config(file_of(input));
  write_gpt2_config(path_of("copy"), config);
  require(hash(read_gpt2_config(path_of("copy"))) == hash(config), "a configuration is read again");
}

void llama_config(Input input) {
  const LlamaConfig config = read_llama_config(file_of(input));
  write_llama_config(path_of("copy"), config);
  require(hash(read_llama_config(path_of("copy"))) == hash(config), "a configuration is read again");
}

void class_names(Input input) { require(!read_class_names(file_of(input)).empty(), "there are classes"); }

struct Variables {
  static constexpr const char *kRank = "OMPI_COMM_WORLD_RANK", *kWorld = "OMPI_COMM_WORLD_SIZE";
  Variables(const std::string& rank, const std::string& world) {
    ::setenv(kRank, rank.c_str(), 1);
    ::setenv(kWorld, world.c_str(), 1);
  }
  ~Variables() {
    ::unsetenv(kRank);
    ::unsetenv(kWorld);
  }
};

// Two bytes: --nodes and --workers-per-node. Lines: the variables of mpirun, then one host per rank.
void launcher_and_hosts(Input input) {
  const Topology given{input.byte() % 9, input.byte() % 9};
  std::vector<std::string> lines = lines_of(input, 66);
  lines.resize(std::max<size_t>(lines.size(), 3));
  const Variables variables(lines[0], lines[1]);
  if (const auto launched = launcher()) {
    const Topology topology = fit_topology(given, launched->world);
    require(topology.world() == 0 || topology.world() == launched->world, "the topology has all ranks");
  }
  const std::vector<std::string> hosts(lines.begin() + 2, lines.end());
  require(topology_of_hosts(hosts).world() == std::ssize(hosts), "the topology has all ranks");
}

void choices(Input input) {
  const ChoiceFile file(file_of(input), "a GPU");
  const Choices found = file.read();
  const std::string key = "conv";
  const bool known = found.values.contains(key);
  const std::string old = known ? found.values.at(key) : "1";
  require(file.record(key, "1") == old, "the first choice stays");
  Choices again = file.read();
  require(again.values[key] == old && (known || again.damage.empty()), "a recorded choice is read again");
  if (!known) again.values.erase(key);
  require(again.values == found.values, "recording keeps the other choices");
}

}  // namespace

std::vector<Target> config_targets() {
  return {{"config_json", config_json},     {"command_line", command_line},
          {"bert_config", bert_config},     {"gpt2_config", gpt2_config},
          {"llama_config", llama_config},   {"class_names", class_names},
          {"launcher", launcher_and_hosts}, {"choices", choices}};
}

}  // namespace godwit::fuzz
