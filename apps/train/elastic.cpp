#include "apps/train/elastic.h"

#include <fstream>
#include <sstream>

#include "engine/json-inl.h"
#include "engine/json_text.h"
#include "optim/checkpoint.h"

namespace godwit::apps {

std::string keep_samples_per_step(CommonConfig& config, int64_t now) {
  if (config.resume.empty() || config.run_dir.empty() || newest_checkpoint(config.run_dir + "/checkpoints").empty())
    return "";
  const std::string path = config.run_dir + "/config.json";
  std::ifstream in(path, std::ios::binary);
  if (!in.is_open()) return "";
  std::ostringstream text;
  text << in.rdbuf();
  check_json(text.str(), path + ":", {.depth = 8, .unique_names = true});
  const nlohmann::json saved = parse_json(text.str());
  const auto number = [&](const char* name) -> int64_t {
    check(saved.is_object() && saved.contains(name) && saved.at(name).is_number_integer() && saved.at(name) >= 1 &&
              saved.at(name) <= (1 << 20),
          path, ": has no positive whole number \"", name, "\"");
    return saved.at(name).get<int64_t>();
  };
  const int64_t before = number("nodes") * number("workers_per_node");
  if (before == now) return "";
  const int64_t samples = before * number("batch") * number("accumulation");
  if (samples == now * config.batch * config.accumulation) return "";
  check(samples % now == 0, "the run in ", config.run_dir, " has ", samples, " samples per step, which ", now,
        " workers cannot divide equally; continue with a number of workers that divides ", samples);
  const int64_t of_worker = samples / now;  // per step
  if (of_worker % config.batch == 0 && !config.samples_are_streams()) {
    config.accumulation = static_cast<int>(of_worker / config.batch);
  } else if (of_worker % config.accumulation == 0) {
    config.batch = of_worker / config.accumulation;
  } else {
    config.batch = of_worker, config.accumulation = 1;
  }
  return detail::concat(now, now == 1 ? " worker instead of " : " workers instead of ", before, ": batch ",
                        config.batch, " and accumulation ", config.accumulation, " keep ", samples,
                        " samples per step");
}

}  // namespace godwit::apps
