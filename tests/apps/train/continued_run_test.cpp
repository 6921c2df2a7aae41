// Options that may not change when a run continues.
#include "apps/train/continued_run.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/image/image_config.h"
#include "apps/text/gpt_config.h"
#include "apps/text/lm_config.h"
#include "apps/text/text_config.h"
#include "tests/support.h"

namespace godwit::apps {
namespace continued_run_test {

using nlohmann::json;

class ContinuedRun : public testing::Test {
 protected:
  // The default configuration of a network, which continues the run in folder_.
  ConfigPtr config_of(const Program& program, const std::string& model, const std::string& init_weights = "") const {
    const ConfigPtr config = program.defaults([&](const std::string& option) {
      return option == "model.name" ? model : option == "init_weights" ? init_weights : std::string();
    });
    config->optimizer = program.optimizer_defaults(*config, program.default_optimizer);
    config->program = program.name;
    config->init_weights = init_weights;
    config->run_dir = folder_.str(), config->resume = "auto";
    return config;
  }
  void save(const json& config) const { std::ofstream(folder_ / "config.json") << config.dump(); }
  std::string error(const CommonConfig& config) const {
    try {
      check_same_network(config);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  TempFolder folder_;
};

TEST_F(ContinuedRun, NoOptionOfTheNetworkMayChange) {
  const std::set<std::string> free{"init_weights",          "model.aux_loss",       "model.dropout",
                                   "model.hidden_dropout",  "model.init_range",     "model.input_dropout",
                                   "model.recompute",       "model.output_dropout", "model.weight_dropout",
                                   "model.recurrent_range", "model.sync_bn",        "model.zero_init_residual"};
  std::set<std::string> fixed, unseen = free;
  for (const auto& [program, model] : {std::pair{&image_program(), "resnet18"},
                                       {&image_program(), "vit_tiny"},
                                       {&text_program(), "bert_mini"},
                                       {&gpt_program(), "gpt2_nano"},
                                       {&gpt_program(), "mixtral_nano"},
                                       {&lm_program(), "lstm_small"}}) {
    const ConfigPtr config = config_of(*program, model);
    const json now = json::parse(to_json(*config));
    save(now);
    EXPECT_EQ(error(*config), "") << model;
    for (const Option& option : config->options()) {
      if (!option.inapplicable.empty()) continue;
      std::string path = "/" + option.name;
      std::replace(path.begin(), path.end(), '.', '/');
      json other = now;
      other[json::json_pointer(path)] = "other";
      save(other);
      const std::string message = error(*config);
      if (message.empty()) {
        EXPECT_TRUE(option.section != "model" || free.contains(option.name)) << option.name;
        unseen.erase(option.name);
        continue;
      }
      EXPECT_EQ(option.section, "model") << option.name;
      EXPECT_FALSE(free.contains(option.name)) << option.name;
      fixed.insert(option.name);
      EXPECT_EQ(message, detail::concat(folder_ / "config.json", ": is of a run with another network: ", option.name,
                                        " ", now.at(json::json_pointer(path)).dump(),
                                        " (was \"other\"); use the values of that run, or start a new run in another "
                                        "folder"));
    }
  }
  EXPECT_EQ(unseen, std::set<std::string>());
  for (const char* name : {"model.name", "model.n_head", "model.rope_theta", "model.tied", "model.patch_size", "task"})
    EXPECT_TRUE(fixed.contains(name)) << name;
}

// Options of another version of Godwit may be missing.
TEST_F(ContinuedRun, AMissingOptionIsNoChange) {
  const ConfigPtr config = config_of(gpt_program(), "llama_nano");
  json saved = json::parse(to_json(*config));
  saved["model"].erase("rope_theta");
  save(saved);
  EXPECT_EQ(error(*config), "");
  saved.erase("model");
  save(saved);
  EXPECT_EQ(error(*config), "");
}

TEST_F(ContinuedRun, TheAutomaticNetworkHasAName) {
  for (const auto& [program, name, other] : {std::tuple{&gpt_program(), "gpt2_nano", "gpt2_micro"},
                                             {&text_program(), "bert_mini", "bert_tiny"}}) {
    save(json::parse(to_json(*config_of(*program, "auto"))));
    EXPECT_EQ(error(*config_of(*program, name)), "");
    EXPECT_NE(error(*config_of(*program, other)).find(detail::concat("model.name \"", other, "\" (was \"", name)),
              std::string::npos);
    save(json::parse(to_json(*config_of(*program, name))));
    EXPECT_EQ(error(*config_of(*program, "auto")), "");
  }
}

// With initial weights, the configuration has no sizes of the network.
TEST_F(ContinuedRun, InitialWeightsThatDetermineTheNetworkMayNotBeDropped) {
  for (const Program* program : {&gpt_program(), &text_program()}) {
    const ConfigPtr without = config_of(*program, "auto"), with = config_of(*program, "auto", "weights");
    const std::string part = ": is of a run with another network: ", is = "init_weights ";
    save(json::parse(to_json(*with)));
    EXPECT_EQ(error(*with), "");
    EXPECT_EQ(error(*config_of(*program, "auto", "moved")), "");
    EXPECT_NE(error(*without).find(part), std::string::npos) << error(*without);
    EXPECT_NE(error(*without).find(is + "\"\" (was \"weights\"); "), std::string::npos) << error(*without);
    save(json::parse(to_json(*without)));
    EXPECT_NE(error(*with).find(part), std::string::npos) << error(*with);
    EXPECT_NE(error(*with).find(is + "\"weights\" (was \"\"); "), std::string::npos) << error(*with);
  }
  save(json::parse(to_json(*config_of(image_program(), "resnet20", "weights"))));
  EXPECT_EQ(error(*config_of(image_program(), "resnet20")), "") << "model.name determines the network";
}

// 24 samples per step: another accumulation, otherwise another batch, otherwise no accumulation.
TEST_F(ContinuedRun, AnotherNumberOfWorkersKeepsTheSamplesPerStep) {
  std::filesystem::create_directories(folder_ / "checkpoints/step-2");
  std::ofstream(folder_ / "checkpoints/step-2/manifest.json") << "{}";
  const ConfigPtr saved = config_of(image_program(), "resnet20");
  saved->nodes = 4, saved->workers_per_node = 1, saved->batch = 3, saved->accumulation = 2;
  save(json::parse(to_json(*saved)));
  for (const auto& [workers, batch, accumulation] :
       {std::tuple{8, 3, 1}, {2, 3, 4}, {6, 2, 2}, {12, 1, 2}, {24, 1, 1}}) {
    const ConfigPtr config = config_of(image_program(), "resnet20");
    config->batch = 3, config->accumulation = 2;
    EXPECT_EQ(keep_samples_per_step(*config, workers),
              detail::concat(workers, " workers instead of 4: batch ", batch, " and accumulation ", accumulation,
                             " keep 24 samples per step"));
    EXPECT_EQ(config->batch, batch) << workers;
    EXPECT_EQ(config->accumulation, accumulation) << workers;
  }
}

// 12 streams, and 24 samples per step.
TEST_F(ContinuedRun, AnotherNumberOfWorkersKeepsTheStreamsOfText) {
  std::filesystem::create_directories(folder_ / "checkpoints/step-2");
  std::ofstream(folder_ / "checkpoints/step-2/manifest.json") << "{}";
  const auto lm_config = [&](int accumulation) {
    const ConfigPtr config = config_of(lm_program(), "lstm_small");
    config->batch = 3, config->accumulation = accumulation;
    return config;
  };
  const ConfigPtr saved = lm_config(2);
  saved->nodes = 4, saved->workers_per_node = 1;
  save(json::parse(to_json(*saved)));
  for (const int given : {1, 2, 4})
    for (const auto& [workers, batch] : {std::pair{3, 4}, {6, 2}, {12, 1}}) {
      const ConfigPtr config = lm_config(given);
      EXPECT_EQ(keep_samples_per_step(*config, workers),
                detail::concat(workers, " workers instead of 4: batch ", batch,
                               " and accumulation 2 keep 24 samples per step"));
      EXPECT_EQ(config->batch, batch) << workers;
      EXPECT_EQ(config->accumulation, 2) << workers;
    }
  EXPECT_EQ(error_of([&] { keep_samples_per_step(*lm_config(2), 8); }),
            "the run in " + folder_.str() +
                " has 12 streams of text, which 8 workers cannot divide equally; "
                "continue with a number of workers that divides 12");
}

TEST_F(ContinuedRun, TheNumberOfSavedWorkersIsLimited) {
  std::filesystem::create_directories(folder_ / "checkpoints/step-2");
  std::ofstream(folder_ / "checkpoints/step-2/manifest.json") << "{}";
  json saved = json::parse(to_json(*config_of(image_program(), "resnet20")));
  saved["nodes"] = saved["workers_per_node"] = 1 << 20;
  save(saved);
  EXPECT_NE(error_of([&] {
              keep_samples_per_step(*config_of(image_program(), "resnet20"), 8);
            }).find("config.json: has 1099511627776 workers; expected at most 1048576"),
            std::string::npos);
}

}  // namespace continued_run_test
}  // namespace godwit::apps
