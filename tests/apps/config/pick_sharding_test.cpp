#include "apps/config/pick_sharding.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/text/gpt_config.h"
#include "tests/apps/config/parse.h"
#include "tests/support.h"

namespace godwit::apps {
namespace pick_sharding_test {

constexpr const char* kPicksHybrid =
    "exchange.sharding=auto picks hybrid: the 2 workers of each node divide the parameters";

// The configuration of train_gpt with the words of `flags`.
ConfigPtr gpt(const std::string& flags) {
  std::istringstream in(flags);
  Words words{"train_gpt"};
  for (std::string word; in >> word;) words.push_back(word);
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  std::ostringstream out;
  return parse_command_line(gpt_program(), static_cast<int>(argv.size()), argv.data(), out);
}

// Expects the sharding, and one notice that begins with `notice`, or none if it is empty.
void expect_sharding(const std::string& flags, Sharding expected, const std::string& notice) {
  const ConfigPtr config = gpt(flags);
  EXPECT_EQ(config->exchange.sharding, expected) << flags << ": " << config->exchange.text("sharding");
  ASSERT_EQ(config->notices.size(), notice.empty() ? 0u : 1u) << flags;
  if (!notice.empty()) {
    EXPECT_TRUE(config->notices[0].starts_with(notice)) << config->notices[0];
  }
}

TEST(PickSharding, PicksHybridOnSeveralNodesOfSeveralWorkers) {
  const std::string nodes = "--nodes 2 --workers-per-node 2 ";
  expect_sharding(nodes, Sharding::hybrid, kPicksHybrid);
  expect_sharding(nodes + "--exchange loco", Sharding::hybrid, kPicksHybrid);
  for (const char* name : {"birder", "one_bit_adam", "zero_one_adam", "one_bit_lamb"})
    expect_sharding(nodes + "--optimizer " + name, Sharding::hybrid, kPicksHybrid);
  expect_sharding(nodes + "--set exchange.reshard_after_forward=false", Sharding::hybrid, kPicksHybrid);
  expect_sharding("--nodes 2", Sharding::none, "");
  expect_sharding("--workers-per-node 2", Sharding::none, "");
  for (const Sharding given : {Sharding::none, Sharding::zero2, Sharding::hybrid}) {
    const std::string name = choices_of(given)[static_cast<size_t>(given)];
    expect_sharding(nodes + "--set exchange.sharding=" + name, given, "");
    expect_sharding("--nodes 2 --set exchange.sharding=" + name, given, "");
  }
}

// train_gpt clips gradients by default, except with signsgd.
TEST(PickSharding, SignsAreNotClipped) {
  EXPECT_EQ(gpt("--exchange ef_signsgd")->clip.norm, 1);
  EXPECT_EQ(gpt("--exchange signsgd")->clip.norm, 0);
  EXPECT_THROW(gpt("--exchange signsgd --set clip.norm=1"), Error);
  const std::string saved = write_file(R"({"exchange": {"name": "signsgd"}, "clip": {"norm": 0}})");
  EXPECT_EQ(gpt("--config " + saved)->clip.norm, 0);
  EXPECT_EQ(gpt("--exchange dense --config " + saved)->clip.norm, 1);
  EXPECT_EQ(gpt("--optimizer birder --config " + saved)->clip.norm, 1);
}

TEST(PickSharding, PicksTheDefaultOfTheExchangeWhereHybridIsNotSupported) {
  const std::string nodes = "--nodes 2 --workers-per-node 2 ",
                    none = "exchange.sharding=auto picks none instead of hybrid: ";
  expect_sharding(nodes + "--optimizer birder --set optimizer.frozen=wte", Sharding::none, none + "birder: frozen");
  expect_sharding(nodes + "--exchange ef_signsgd --set exchange.block_size=-1", Sharding::none,
                  none + "ef_signsgd: block_size -1");
  expect_sharding(nodes + "--exchange zeropp", Sharding::zero2, "");
  expect_sharding(nodes + "--exchange zeropp --set exchange.sharding=auto", Sharding::hybrid, kPicksHybrid);
  expect_sharding("--nodes 2 --exchange zeropp --set exchange.sharding=auto", Sharding::zero2, "");
}

// A resumed run keeps the choice, also with another number of workers.
TEST(PickSharding, TheConfigurationKeepsTheChoice) {
  for (const auto& [flags, name] : {std::pair{"--nodes 2 --workers-per-node 2", "hybrid"},
                                    {"--nodes 2", "none"},
                                    {"--nodes 2 --optimizer birder", "none"},
                                    {"--nodes 2 --optimizer one_bit_adam", "none"}}) {
    const std::string saved = to_json(*gpt(flags));
    EXPECT_EQ(nlohmann::json::parse(saved)["exchange"]["sharding"], name) << flags;
    const ConfigPtr again = gpt("--config " + write_file(saved) + " --nodes 4 --workers-per-node 2");
    EXPECT_EQ(again->exchange.text("sharding"), name) << flags;
    EXPECT_TRUE(again->notices.empty()) << again->notices[0];
  }
}

TEST(PickSharding, OtherProgramsKeepNone) {
  const Words nodes{"--nodes", "2", "--workers-per-node", "2"};
  EXPECT_EQ(parse(nodes).exchange.sharding, Sharding::none);
  Words words = nodes;
  words.insert(words.end(), {"--set", "exchange.sharding=auto"});
  EXPECT_EQ(parse(words).exchange.sharding, Sharding::hybrid);
  words.insert(words.end(), {"--optimizer", "birder"});
  EXPECT_EQ(parse(words).exchange.sharding, Sharding::hybrid);
  EXPECT_EQ(nlohmann::json::parse(to_json(parse({"--optimizer", "birder"}))).count("exchange"), 0u);
}

TEST(PickSharding, OptimizersThatCommunicateRefuseOtherKinds) {
  for (const auto& [flag, message] :
       {std::pair{"exchange.sharding=zero1",
                  "exchange.sharding: birder keeps state of all parameters on every rank, which only hybrid"},
        {"exchange.parameter_wire=bf16",
         "parameter_wire bf16 applies to sharded parameters only, and sharding is none"}})
    try {
      gpt(std::string("--optimizer birder --set ") + flag);
      ADD_FAILURE() << flag;
    } catch (const Error& e) {
      expect_parts(e.what(), {message});
    }
}

TEST(PickSharding, CudaGraphsHaveNoHybridSharding) {
  GptConfig config;
  config.nodes = config.workers_per_node = 2;
  config.cuda_graph = true;
  pick_sharding(config);
  EXPECT_EQ(config.exchange.sharding, Sharding::none);
  ASSERT_EQ(config.notices.size(), 1u);
  EXPECT_NE(config.notices[0].find("picks none instead of hybrid: cuda_graph"), std::string::npos) << config.notices[0];
}

// The topology is not known before MPI has started if each host is a node.
TEST(PickSharding, WaitsForTheTopology) {
  GptConfig config;
  config.nodes = config.workers_per_node = 0;
  pick_sharding(config);
  EXPECT_EQ(config.exchange.sharding, Sharding::automatic);
  config.nodes = config.workers_per_node = 2;
  pick_sharding(config);
  EXPECT_EQ(config.exchange.sharding, Sharding::hybrid);
}

// A continued run keeps its choice, even before the topology is known, or if a new run would choose another kind.
TEST(PickSharding, AContinuedRunKeepsItsSharding) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "checkpoints/step-2");
  std::ofstream(folder / "checkpoints/step-2/manifest.json") << "{}";
  const auto picked = [&](const std::string& saved, int nodes, const char* frozen = "") {
    std::ofstream(folder / "config.json") << R"({"exchange": {"name": "dense", "sharding": ")" + saved + "\"}}";
    GptConfig config;
    config.optimizer = "birder";
    config.resume = "auto", config.run_dir = folder.str();
    config.nodes = config.workers_per_node = nodes;
    config.optimizer.set("frozen", frozen);
    pick_sharding(config);
    return config.exchange.text("sharding");
  };
  EXPECT_EQ(picked("hybrid", 0), "hybrid");
  EXPECT_EQ(picked("hybrid", 1), "hybrid");
  EXPECT_EQ(picked("none", 2), "none");
  EXPECT_EQ(picked("hybrid", 2, "wte"), "none") << "optimizer.frozen excludes hybrid sharding";
}

TEST(PickSharding, HelpNamesTheDefault) {
  const auto help = [](const Program& program, const char* topic) {
    const std::vector<const char*> argv{"program", "--help", topic};
    std::ostringstream out;
    parse_command_line(program, 3, argv.data(), out);
    const std::string text = out.str();
    return text.substr(text.find("exchange.sharding"), 1000);
  };
  for (const char* topic : {"loco", "exchange.sharding"}) {
    EXPECT_NE(help(gpt_program(), topic).find("[auto]"), std::string::npos) << help(gpt_program(), topic);
    EXPECT_NE(help(image_program(), topic).find("[none]"), std::string::npos) << help(image_program(), topic);
  }
}

}  // namespace pick_sharding_test
}  // namespace godwit::apps
