// The list of optimizers and their options: descriptions, defaults, names, ranges.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "comm/exchange/method.h"
#include "comm/transport/local.h"
#include "optim/adam.h"
#include "optim/birder.h"
#include "optim/data_parallel.h"
#include "optim/one_bit_adam.h"
#include "optim/sgd.h"
#include "tests/optim/support.h"
#include "tests/support.h"

namespace godwit {
namespace optimizer_methods_test {

using test::error_or_none;

// Creates the optimizer for a small model on one rank. Returns the text of the error, or "".
std::string refusal(const OptimizerConfig& config, bool with_exchange) {
  return error_or_none([&] {
    run_local({1, 1}, [&](Communicator& comm) {
      Buckets buckets({{"x", Var(Tensor::zeros({5}), true)}}, {});
      make_optimizer(config, {buckets, comm, 1, with_exchange ? make_exchange("dense", buckets, comm, 1) : nullptr});
    });
  });
}

std::string refusal(const OptimizerConfig& config) { return refusal(config, !config.method().communicates_itself); }

bool reads(const std::string& optimizer, const std::string& option) { return OptimizerConfig(optimizer).has(option); }

TEST(OptimizerMethods, EachIsDescribed) {
  std::set<std::string> names;
  for (const OptimizerMethod* method : methods<OptimizerMethod>()) {
    SCOPED_TRACE(method->name);
    EXPECT_TRUE(names.insert(method->name).second) << "two methods have this name";
    for (const std::string& alias : method->aliases) EXPECT_TRUE(names.insert(alias).second) << alias;
    for (const std::string& text : {method->help, method->paper, method->bytes}) {
      EXPECT_NE(text, "");
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
    EXPECT_EQ(method->bytes == kExchangeBytes, !method->communicates_itself);
    std::set<std::string> options;
    for (const Option& option : OptimizerConfig(*method).list()) {
      EXPECT_TRUE(options.insert(option.name).second) << "two options " << option.name;
      EXPECT_NE(option.help, "") << option.name;
      EXPECT_EQ(option.inapplicable, "") << option.name;
    }
    for (const char* common : {"lr", "weight_decay", "decay_norm_and_bias"}) EXPECT_TRUE(options.contains(common));
  }
}

TEST(OptimizerMethods, CanBeCreatedWithDefaults) {
  for (const std::string& name : method_names<OptimizerMethod>()) {
    const OptimizerConfig config = for_run(name, Schedule({}, 0.1, 10, 100), 100);
    EXPECT_EQ(config.name(), name);
    EXPECT_GT(config.number("lr"), 0);
    EXPECT_EQ(refusal(config), "");
    EXPECT_NE(refusal(config, config.method().communicates_itself), "") << "a surplus exchange, or a missing one";
  }
  const Birder::Options birder;  // the settings of the Birder paper, appendix B.1
  EXPECT_EQ(birder.lr, 5e-3);
  EXPECT_EQ(birder.beta, 0.95);
  EXPECT_EQ(birder.eps, 1e-8);
  EXPECT_EQ(birder.weight_decay, 0.05);
  EXPECT_EQ(Sgdm::Options{}.lr, 0.1);
  EXPECT_EQ(Sgdm::Options{}.momentum, 0.9);
  const BertAdam::Options bert;  // the settings of BERT's released training code
  EXPECT_EQ(bert.eps, 1e-6);
  EXPECT_EQ(bert.weight_decay, 0.01);
  EXPECT_FALSE(bert.decay_norm_and_bias);
}

TEST(OptimizerMethods, HaveExactlyTheOptionsTheyRead) {
  EXPECT_TRUE(reads("sgdm", "nesterov"));
  EXPECT_FALSE(reads("sgd", "momentum"));
  EXPECT_FALSE(reads("adam", "beta"));
  EXPECT_TRUE(reads("binsgdm", "error_feedback"));
  EXPECT_TRUE(reads("bert_adam", "beta2"));
  EXPECT_FALSE(reads("softsignsgd", "quantizer"));
}

TEST(OptimizerMethods, AnAliasSelectsTheMethod) {
  EXPECT_EQ(OptimizerConfig("binsgdm").name(), "birder");
  EXPECT_EQ(&OptimizerConfig("binsgdm").method(), &OptimizerConfig("birder").method());
}

TEST(OptimizerMethods, TypedOptionsEqualNameAndJson) {
  const auto expect_same = [](const OptimizerConfig& typed, const OptimizerConfig& named) {
    EXPECT_EQ(typed.name(), named.name());
    for (const Option& option : typed.list()) EXPECT_EQ(value_text(option), named.text(option.name)) << option.name;
  };
  expect_same(Birder::Options{.lr = 0.01, .beta = 0.9, .moments = Birder::Moments::bf16, .frozen = "p1"},
              {"birder", R"({"lr": 0.01, "beta": 0.9, "moments": "bf16", "frozen": "p1"})"});
  expect_same(Sgdm::Options{.nesterov = true}, {"sgdm", R"({"nesterov": true})"});
  expect_same(AdamW::Options{.beta2 = 0.95}, {"adamw", R"({"beta2": 0.95})"});
  expect_same(OneBitAdam::Options{.sign_scale = SignScale::l2_rms, .block_size = -1},
              {"one_bit_adam", R"({"sign_scale": "l2_rms", "block_size": -1})"});
  for (const std::string& name : method_names<OptimizerMethod>()) expect_same(name, {name, "{}"});
}

TEST(OptimizerMethods, AnUnknownNameIsRefusedWithASuggestion) {
  const auto expect_suggestion = [](const auto& f, const std::string& right) {
    const std::string error = error_of(f);
    EXPECT_NE(error.find("did you mean '" + right + "'"), std::string::npos) << error;
  };
  for (const auto& [wrong, right] : {std::pair{"birdr", "birder"}, {"AdamW2", "adamw"}, {"sgdmm", "sgdm"}})
    expect_suggestion([wrong = wrong] { OptimizerConfig{wrong}; }, right);
  for (const auto& [wrong, right] : {std::pair{"bta", "beta"}, {"errorfeedback", "error_feedback"}}) {
    expect_suggestion([wrong = wrong] { OptimizerConfig("birder").set(wrong, 1); }, right);
    expect_suggestion([wrong = wrong] { OptimizerConfig("birder").text(wrong); }, right);
    expect_suggestion([json = detail::concat("{\"", wrong, "\": 1}")] { OptimizerConfig("birder", json); }, right);
  }
  expect_suggestion([] { OptimizerConfig("birder").set("error_feedback", "workr"); }, "worker");
  expect_suggestion([] { OptimizerConfig("birder", R"({"moments": "bf61"})"); }, "bf16");
}

TEST(OptimizerMethods, AValueOutOfRangeIsRefusedWithTheRange) {
  const auto refuses = [](const char* name, const char* option, const auto& value, const std::string& range) {
    const std::string error = error_of([&] { OptimizerConfig(name).set(option, value); });
    EXPECT_EQ(error.find(detail::concat(name, ": ", option, " expects ")), 0u) << error;
    const bool only_float = error.find(", also as float32, got ") != std::string::npos;  // in range as float64
    EXPECT_NE(error.find(range + (only_float ? ", also as float32, got " : ", got ")), std::string::npos) << error;
  };
  const double nan = std::nan(""), infinity = INFINITY;
  for (const std::string& name : method_names<OptimizerMethod>())
    for (const char* option : {"lr", "weight_decay"}) {
      for (const double bad : {nan, infinity, -1e-3, 1e60}) refuses(name.c_str(), option, bad, "of at least 0");
      EXPECT_EQ(error_or_none([&] { OptimizerConfig(name).set(option, 0); }), "");
    }
  for (const double bad : {nan, 1.0, -0.1, 1.5, 1 - 1e-12})
    for (const auto& [name, option] : {std::pair{"sgdm", "momentum"},
                                       {"adam", "beta1"},
                                       {"adamw", "beta2"},
                                       {"birder", "beta"},
                                       {"one_bit_lamb", "coeff_beta"}})
      refuses(name, option, bad, "in [0, 1)");
  for (const double bad : {nan, 0.0, -1e-8, 1e-60, 1e60}) {
    refuses("birder", "eps", bad, "above 0");
    refuses("adam", "eps", bad, "above 0");
  }
  for (const double bad : {nan, 0.0, 1.1}) refuses("adafactor", "decay_exponent", bad, "in (0, 1]");
  refuses("birder", "t0", -1, "of at least 0");
  for (const auto& [option, value] : {std::pair{"quantizer", "stochastic"}, {"collective", "ring"}}) {
    const std::string error = error_of([&, o = option, v = value] { OptimizerConfig("birder").set(o, v); });
    EXPECT_NE(error.find(detail::concat("no such ", option, " '", value, "'")), std::string::npos) << error;
  }
}

// Options that a program sets directly are checked when the optimizer is created.
TEST(OptimizerMethods, TypedOptionsAreChecked) {
  EXPECT_NE(refusal(Birder::Options{.beta = 1.5}).find("birder: beta expects a finite number in [0, 1), got 1.5"),
            std::string::npos);
  EXPECT_NE(refusal(Sgdm::Options{.momentum = 0, .nesterov = true}).find("nesterov needs a momentum above 0"),
            std::string::npos);
  for (const ErrorFeedback feedback : {ErrorFeedback::server, ErrorFeedback::none}) {
    const Birder::Options sign{.error_feedback = feedback, .quantizer = Birder::Quantizer::sign};
    EXPECT_NE(refusal(sign).find("needs the workers' error feedback"), std::string::npos);
  }
  EXPECT_EQ(refusal(Birder::Options{.error_feedback = ErrorFeedback::worker, .quantizer = Birder::Quantizer::sign}),
            "");
}

TEST(OptimizerMethods, AFrozenSecondMomentPrintsANotice) {
  const auto notices = [](const OptimizerConfig& config, int64_t steps) {
    return config.method().notices(config.options(), steps);
  };
  const auto linear = [](int64_t steps) { return Schedule({.name = "linear"}, 1e-3, 10, steps); };
  for (const char* name : {"one_bit_adam", "zero_one_adam"}) {
    const OptimizerConfig published(name, R"({"bias_correction": false})");
    EXPECT_TRUE(notices(for_run(name, linear(40), 40), 40).empty()) << name;
    const auto few = notices(for_run(published, linear(40), 40), 40);
    ASSERT_EQ(few.size(), 1u);
    EXPECT_NE(few[0].find(std::string(name) + " freezes its second moment after "), std::string::npos) << few[0];
    EXPECT_TRUE(notices(for_run(published, linear(10'000), 10'000), 10'000).empty()) << name;
  }
  EXPECT_NE(notices(OneBitAdam::Options{.warmup_steps = 6, .bias_correction = false}, 40)[0].find(
                "after 6 changes, at 0.6 % of g²"),
            std::string::npos);
}

TEST(OptimizerMethods, OptionsWithoutEffectInTheRunPrintANotice) {
  const auto notices = [](const OptimizerConfig& config, int64_t steps, const std::string& schedule = "cosine") {
    const OptimizerConfig fitted = for_run(config, Schedule({.name = schedule}, 1e-3, 10, steps), steps);
    const auto notices_of = fitted.method().notices;
    return notices_of ? notices_of(fitted.options(), steps) : std::vector<std::string>();
  };
  EXPECT_TRUE(notices("birder", 40).empty());
  EXPECT_TRUE(notices(Birder::Options{.t0 = 39}, 40).empty());
  EXPECT_EQ(notices(Birder::Options{.t0 = 40}, 40),
            std::vector<std::string>{"birder: optimizer.t0 is 40, but the run has 40 steps, so the mean magnitude may "
                                     "decrease in every step; lower it"});

  const std::string every = "zero_one_adam synchronizes in every step of this run, because ";
  const OptimizerConfig doubling("zero_one_adam", R"({"intervals": "doubling", "warmup_steps": 10})");
  EXPECT_TRUE(notices(doubling, 40).empty());
  EXPECT_EQ(notices(doubling, 20),
            std::vector{every + "the run ends before an interval exceeds one step; lower optimizer.doubling_steps or "
                                "the warm-up"});
  EXPECT_EQ(notices("zero_one_adam", 40, "constant"),
            std::vector{every + "the learning rate does not fall to half of its value at the end of the warm-up; set "
                                "optimizer.intervals=doubling, or another schedule"});
  const std::string warmup =
      every + "the warm-up is too long for local steps; lower optimizer.warmup_steps or optimizer.warmup_fraction";
  EXPECT_EQ(notices({"zero_one_adam", R"({"warmup_steps": 40})"}, 40), std::vector{warmup});
  EXPECT_EQ(notices({"zero_one_adam", R"({"intervals": "fixed", "warmup_steps": 39})"}, 40), std::vector{warmup});
  EXPECT_TRUE(notices({"zero_one_adam", R"({"intervals": "fixed", "warmup_steps": 38})"}, 40).empty());
  EXPECT_TRUE(notices({"zero_one_adam", R"({"max_interval": 1})"}, 40, "constant").empty())
      << "the user asked for a synchronization in every step";
}

}  // namespace optimizer_methods_test
}  // namespace godwit
