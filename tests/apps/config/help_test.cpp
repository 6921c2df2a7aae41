// --help and --help TOPIC.
#include <gmock/gmock.h>

#include <sstream>

#include "apps/config/build_identity.h"
#include "comm/transport/mpi.h"
#include "optim/method.h"
#include "tests/apps/config/parse.h"

namespace godwit::apps {
namespace help_test {

TEST(Help, ListsProgramsAndMethods) {
  EXPECT_FALSE(run({"--help", "--lr", "nan", "--nonsense"}).config);
  for (const Program* program : {&image_program(), &text_program()}) {
    std::ostringstream printed;
    const std::vector<const char*> argv = {program->name.c_str(), "--help"};
    EXPECT_EQ(parse_command_line(*program, 2, argv.data(), printed), nullptr);
    const std::string text = printed.str();
    EXPECT_NE(text.find("  ./" + program->name + " --optimizer birder --nodes 8\n"), std::string::npos);
    for (const std::string& name : method_names<OptimizerMethod>())
      EXPECT_NE(text.find("\n  " + name + " "), std::string::npos) << name;
    for (const std::string& name : method_names<ExchangeMethod>())
      EXPECT_NE(text.find("\n  " + name + " "), std::string::npos) << name;
    const ConfigPtr config = default_config(*program);
    for (const Option& option : config->options()) {
      if (option.flag.empty() && (option.section == "optimizer" || option.name.starts_with("exchange."))) continue;
      const std::string& word = option.flag.empty() ? option.name : option.flag;
      EXPECT_NE(text.find("\n  " + word + " "), std::string::npos) << word;
    }
    std::istringstream lines(text);
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(line.size(), 100u) << line;
    EXPECT_LE(count, 180);
    EXPECT_NE(text.find("--help NAME lists the options of one"), std::string::npos);
  }
}

std::string help_of(const Program& program, const std::string& topic) {
  std::ostringstream printed;
  const std::vector<const char*> argv = {program.name.c_str(), "--help", topic.c_str()};
  EXPECT_EQ(parse_command_line(program, 3, argv.data(), printed), nullptr);
  std::istringstream lines(printed.str());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  return printed.str();
}

// --help of a method states its paper, its bytes, and all of its options with defaults.
TEST(Help, ExplainsEveryMethod) {
  const auto expect_all = [](const auto& config, const std::string& group, const std::string& text) {
    EXPECT_TRUE(text.starts_with(config.name() + ", an ")) << text;
    for (const std::string& part : {config.method().help, config.method().paper, config.method().bytes})
      EXPECT_NE(text.find(part.substr(0, 20)), std::string::npos) << text;
    EXPECT_NE(text.find("\n  sends "), std::string::npos) << text;
    for (const Option& option : config.list())
      EXPECT_NE(text.find("\n  " + group + option.name), std::string::npos) << option.name;
  };
  for (const std::string& name : method_names<OptimizerMethod>())
    expect_all(OptimizerConfig(name), "optimizer.", help_of(image_program(), name));
  for (const std::string& name : method_names<ExchangeMethod>())
    expect_all(ExchangeConfig(name), "exchange.", help_of(text_program(), name));
  EXPECT_EQ(help_of(image_program(), "binsgdm"), help_of(image_program(), "birder"));
  EXPECT_NE(help_of(image_program(), "birder").find("[0.005]"), std::string::npos) << "the default of lr";
  EXPECT_NE(help_of(text_program(), "birder").find("[4e-04]"), std::string::npos) << "the default of this program";
  for (const char* relative : {"lamb", "one_bit_lamb", "adafactor"})
    for (const Program* program : {&text_program(), &gpt_program(), &lm_program()})
      EXPECT_NE(help_of(*program, relative).find("learning rate; at least 0 [0.01]"), std::string::npos) << relative;
  for (const auto& [name, decay] : {std::pair{"adam", "[0]"}, {"sgd", "[5e-04]"}, {"sgdm", "[5e-04]"}})
    for (const Program* program : {&text_program(), &gpt_program()})
      EXPECT_NE(help_of(*program, name).find(std::string("L2 regularization; at least 0 ") + decay), std::string::npos)
          << name << ": the decay rate of AdamW is too large for L2 regularization";
}

TEST(Help, ExplainsGroupsAndOptions) {
  EXPECT_NE(help_of(image_program(), "data").find("data.crop"), std::string::npos);
  EXPECT_NE(help_of(image_program(), "cosine").find("schedule.final_fraction"), std::string::npos);
  EXPECT_EQ(help_of(image_program(), "constant").find("schedule.final_fraction"), std::string::npos);
  EXPECT_NE(help_of(image_program(), "lr").find("optimizer.lr (--lr)"), std::string::npos);
  EXPECT_NE(help_of(image_program(), "optimizer.momentum").find("in [0, 1)"), std::string::npos);
  EXPECT_NE(help_of(image_program(), "optimizer.beta1").find("optimizer.beta1"), std::string::npos) << "not of sgdm";
  const std::string beta = help_of(text_program(), "optimizer.beta");
  EXPECT_EQ(beta.find("[0.95]"), std::string::npos) << "the library's default, not that of train_bert\n" << beta;
  EXPECT_NE(beta.find("birder\n"), std::string::npos) << beta;
  EXPECT_NE(beta.find("softsignsgd\n"), std::string::npos) << beta;
  EXPECT_NE(help_of(image_program(), "exchange.density").find("exchange.density"), std::string::npos);
  EXPECT_NE(help_of(image_program(), "schedule.milestones").find("schedule.milestones"), std::string::npos);
  EXPECT_NE(help_of(text_program(), "squad").find("task"), std::string::npos);
  expect_parts(error({"--help", "brider"}), {"no such topic 'brider'", "did you mean 'birder'?"});
  expect_parts(error({"--help", "NOTHING"}), {"no such topic 'NOTHING'"});
}

TEST(Version, IsOneLineWithTheBuild) {
  const Answer answer = run({"--epochs", "none", "--version"});
  EXPECT_FALSE(answer.config);
  EXPECT_THAT(answer.printed, testing::MatchesRegex("train_resnet .Godwit [0-9]+[.][0-9]+[.][0-9]+., sources "
                                                    "[0-9a-f]+, (oneDNN|Eigen) [0-9.]+[^\n]*\n"));
  for (const std::string& part : {std::string(version()), std::string(source_hash()), mpi_library()})
    EXPECT_NE(answer.printed.find(part), std::string::npos) << answer.printed;
#ifdef GODWIT_HAS_CUDA
  EXPECT_TRUE(answer.printed.ends_with(", CUDA\n")) << answer.printed;
#endif
}

}  // namespace help_test
}  // namespace godwit::apps
