#include "optim/factory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "comm/transport/local.h"

namespace godwit {
namespace {

// Makes the optimizer for a small model on one rank; returns the error's text, "" when there was none.
std::string refusal(const OptimizerConfig& config, bool with_exchange) {
  try {
    run_local({1, 1}, [&](Communicator& comm) {
      Buckets buckets({{"x", Var(Tensor::zeros({5}), true)}}, {});
      make_optimizer(config, buckets, comm, 1, with_exchange ? make_exchange({"dense"}, buckets, comm, 1) : nullptr);
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string refusal(const OptimizerConfig& config) { return refusal(config, !communicates_itself(config.name)); }

TEST(Factory, MakesEveryMethodFromItsDefaults) {
  for (const std::string& name : optimizer_names()) {
    const OptimizerConfig config = for_run(optimizer_defaults(name), Schedule({}, 0.1, 10, 100), 100);
    EXPECT_EQ(config.name, name);
    EXPECT_GT(config.lr, 0);
    EXPECT_EQ(refusal(config), "");
    EXPECT_NE(refusal(config, communicates_itself(name)), "") << "an exchange too many or too few";
  }
  const OptimizerConfig birder = optimizer_defaults("birder");  // Birder paper, appendix B.1
  EXPECT_EQ(birder.lr, 5e-3);
  EXPECT_EQ(birder.beta, 0.95);
  EXPECT_EQ(birder.eps, 1e-8);
  EXPECT_EQ(birder.weight_decay, 0.05);
  EXPECT_EQ(optimizer_defaults("sgdm").lr, 0.1);
  EXPECT_EQ(optimizer_defaults("sgdm").momentum, 0.9);
  const OptimizerConfig bert = optimizer_defaults("bert_adam");  // BERT's released training code
  EXPECT_EQ(bert.eps, 1e-6);
  EXPECT_EQ(bert.weight_decay, 0.01);
  EXPECT_FALSE(bert.decay_norm_and_bias);
}

TEST(Factory, NamesTheKeysAMethodReads) {
  const auto reads = [](const char* name, const char* key) {
    const auto keys = optimizer_keys(name);
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  for (const std::string& name : optimizer_names()) EXPECT_TRUE(reads(name.c_str(), "lr"));
  EXPECT_TRUE(reads("sgdm", "nesterov"));
  EXPECT_FALSE(reads("sgd", "momentum"));
  EXPECT_FALSE(reads("adam", "beta"));
  EXPECT_TRUE(reads("binsgdm", "error_feedback"));
  EXPECT_TRUE(reads("bert_adam", "beta2"));
  EXPECT_FALSE(reads("softsignsgd", "quantizer"));
}

TEST(Factory, NamesTheNearestMethod) {
  for (const auto& [wrong, right] : {std::pair{"birdr", "birder"}, {"AdamW2", "adamw"}, {"sgdmm", "sgdm"}}) {
    OptimizerConfig config = optimizer_defaults("sgd");
    config.name = wrong;
    EXPECT_NE(refusal(config, true).find(std::string("did you mean '") + right + "'"), std::string::npos)
        << refusal(config, true);
    EXPECT_THROW(optimizer_defaults(wrong), Error);
    EXPECT_THROW(optimizer_keys(wrong), Error);
  }
}

TEST(Factory, RefusesValuesAMethodCannotUse) {
  const auto refuses = [](const char* name, const char* what, auto change) {
    OptimizerConfig config = optimizer_defaults(name);
    change(config);
    const std::string text = refusal(config);
    EXPECT_NE(text.find(what), std::string::npos) << name << " " << what << ": '" << text << "'";
  };
  const auto accepts = [](const char* name, auto change) {
    OptimizerConfig config = optimizer_defaults(name);
    change(config);
    EXPECT_EQ(refusal(config), "") << name;
  };
  const double nan = std::nan("");
  for (const char* name : {"sgd", "sgdm", "adam", "adamw", "bert_adam", "softsignsgd", "birder", "binsgdm"}) {
    for (const double bad : {nan, static_cast<double>(INFINITY), -1e-3}) {
      refuses(name, "lr", [&](auto& c) { c.lr = bad; });
      refuses(name, "weight_decay", [&](auto& c) { c.weight_decay = bad; });
    }
    accepts(name, [](auto& c) { c.lr = 0; });
  }
  for (const double bad : {nan, 1.0, -0.1, 1.5, 1 - 1e-12}) {
    refuses("sgdm", "momentum", [&](auto& c) { c.momentum = bad; });
    refuses("adam", "beta1", [&](auto& c) { c.beta1 = bad; });
    refuses("adamw", "beta2", [&](auto& c) { c.beta2 = bad; });
    refuses("birder", "beta", [&](auto& c) { c.beta = bad; });
    accepts("sgd", [&](auto& c) { c.momentum = bad; });
  }
  for (const double bad : {nan, 0.0, -1e-8, 1e-60, 1e60}) {
    refuses("birder", "eps", [&](auto& c) { c.eps = bad; });
    refuses("adam", "eps", [&](auto& c) { c.eps = bad; });
  }
  refuses("sgdm", "nesterov", [](auto& c) { c.nesterov = true, c.momentum = 0; });
  refuses("birder", "did you mean 'worker'", [](auto& c) { c.error_feedback = "workr"; });
  refuses("birder", "quantizer", [](auto& c) { c.quantizer = "stochastic"; });
  refuses("birder", "collective", [](auto& c) { c.collective = "ring"; });
  refuses("birder", "t0", [](auto& c) { c.t0 = -1; });
  for (const char* feedback : {"server", "none"}) {
    refuses("birder", "needs the workers' error feedback",
            [&](auto& c) { c.quantizer = "sign", c.error_feedback = feedback; });
  }
  accepts("birder", [](auto& c) { c.quantizer = "sign", c.error_feedback = "worker"; });
}

}  // namespace
}  // namespace godwit
