// Descriptions of all exchanges: help, ranges, defaults and messages.
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "comm/exchange/dense.h"
#include "comm/exchange/ef21.h"
#include "comm/exchange/loco.h"
#include "comm/exchange/qsgd.h"
#include "comm/exchange/random_k.h"
#include "comm/exchange/terngrad.h"
#include "comm/exchange/topk.h"
#include "comm/transport/local.h"
#include "tests/support.h"

namespace godwit {
namespace exchange_methods_test {

using ::testing::HasSubstr;
using ::testing::SizeIs;

void expect_one_line(const std::string& text, const std::string& what) {
  EXPECT_FALSE(text.empty()) << what;
  EXPECT_EQ(text.find('\n'), std::string::npos) << what;
}

bool is_number(const Option& option) {
  return std::holds_alternative<int64_t*>(option.ref) || std::holds_alternative<double*>(option.ref);
}

TEST(ExchangeMethods, HaveUniqueNames) {
  const std::vector<std::string> names = method_names<ExchangeMethod>();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  for (const std::string& name : names) EXPECT_EQ(ExchangeConfig(name).name(), name);
}

TEST(ExchangeMethods, AreDescribed) {
  for (const ExchangeMethod* method : methods<ExchangeMethod>()) {
    SCOPED_TRACE(method->name);
    expect_one_line(method->help, "help");
    expect_one_line(method->bytes, "bytes");
    if (method->name != "dense" && method->name != "hierarchical") expect_one_line(method->paper, "paper");
    const ExchangeConfig config = method->name;
    for (const Option& option : config.list()) expect_one_line(option.help, option.name);
    EXPECT_TRUE(config.has("sharding"));
    EXPECT_TRUE(config.has("parameter_wire"));
  }
}

TEST(ExchangeMethods, AcceptTheirDefaults) {
  for (const std::string& name : method_names<ExchangeMethod>()) {
    ExchangeConfig config = name;
    config.check_values();
    for (const Option& option : config.list()) config.set(option.name, value_text(option));
    config.check_values();
  }
}

TEST(ExchangeMethods, RefuseNumbersOutOfRange) {
  int numbers = 0;
  for (const std::string& name : method_names<ExchangeMethod>())
    for (const Option& option : ExchangeConfig(name).list()) {
      if (!is_number(option) || !option.choices.empty()) continue;
      SCOPED_TRACE(name + ": " + option.name);
      ++numbers;
      ASSERT_TRUE(std::isfinite(option.range.min)) << "every number of an exchange has a lower bound";
      std::vector<double> outside{option.range.min - 1};
      if (std::isfinite(option.range.max)) outside.push_back(option.range.max + 1);
      for (const double value : outside) {
        const std::string text = detail::concat(value);
        const std::string error = error_of([&] { ExchangeConfig(name).set(option.name, text); });
        EXPECT_THAT(error, HasSubstr(name + ": " + option.name + " expects "));
        EXPECT_THAT(error, HasSubstr(range_text(option.range)));
        EXPECT_THAT(error, HasSubstr("got '" + text + "'"));
      }
      EXPECT_NE(error_of([&] { ExchangeConfig(name).set(option.name, NAN); }), "");
    }
  EXPECT_GT(numbers, 20);
}

TEST(ExchangeMethods, UnknownNamesSuggestTheNearest) {
  EXPECT_THAT(error_of([] { ExchangeConfig("powersdg"); }), HasSubstr("did you mean 'powersgd'?"));
  for (const std::string& name : method_names<ExchangeMethod>())
    for (const Option& option : ExchangeConfig(name).list()) {
      SCOPED_TRACE(name + ": " + option.name);
      EXPECT_THAT(error_of([&] { ExchangeConfig(name).set(option.name + "x", 1); }),
                  HasSubstr("no such option '" + option.name + "x'; did you mean '" + option.name + "'?"));
      EXPECT_THAT(error_of([&] { ExchangeConfig(name, "{\"" + option.name + "x\": 1}"); }),
                  HasSubstr("did you mean '" + option.name + "'?"));
      const bool integer = std::holds_alternative<int64_t*>(option.ref);
      for (const std::string& choice : option.choices)
        EXPECT_THAT(error_of([&] { ExchangeConfig(name).set(option.name, choice + "_"); }),
                    HasSubstr(integer ? name + ": " + option.name + " expects one of "
                                      : "no such " + option.name + " '" + choice + "_'"));
    }
  EXPECT_THAT(error_of([] { ExchangeConfig("qsgd").set("reply", "codet"); }), HasSubstr("did you mean 'coded'?"));
}

TEST(ExchangeMethods, OptionsFromStructsTextAndJsonAreEqual) {
  const ExchangeConfig of_struct = TopKOptions{.density = 0.25, .reply = Reply::f32};
  ExchangeConfig of_text = "topk";
  of_text.set("density", "0.25").set("reply", "f32");
  const ExchangeConfig of_json("topk", R"({"density": 0.25, "reply": "f32", "sharding": "zero1"})");
  for (const ExchangeConfig* config : {&of_struct, &static_cast<const ExchangeConfig&>(of_text), &of_json}) {
    EXPECT_EQ(config->name(), "topk");
    EXPECT_EQ(config->as<TopKOptions>().density, 0.25);
    EXPECT_EQ(config->text("reply"), "f32");
    EXPECT_EQ(config->text("error_feedback"), "worker");
  }
  EXPECT_EQ(of_json.sharding, Sharding::zero1);
  EXPECT_EQ(ExchangeConfig("loco", R"({"scale": 524288})").text("scale"), "524288");
  EXPECT_EQ(ExchangeConfig(LocoOptions{.bits = 8}).name(), "loco");
  EXPECT_EQ(ExchangeConfig(LocoZeroppOptions{}).name(), "loco_zeropp");
}

TEST(ExchangeMethods, ShardingHasDefaultsAndLimits) {
  for (const char* name : {"zeropp", "loco_zeropp"}) {
    const ExchangeConfig config = name;
    EXPECT_EQ(config.sharding, Sharding::zero2);
    EXPECT_EQ(config.parameter_wire, ParameterWire::int8);
    EXPECT_EQ(config.shard_unit(), config.block_size());
  }
  for (const char* name : {"dense", "loco", "loco_zeropp", "zeropp", "hierarchical", "qsgd", "signsgd", "topk"}) {
    SCOPED_TRACE(name);
    ExchangeConfig config = name;
    config.sharding = Sharding::zero2;
    if (config.method().supports_zero2) {
      config.check_values();
      continue;
    }
    EXPECT_THAT(name, ::testing::AnyOf("hierarchical", "qsgd", "signsgd", "topk"));
    EXPECT_THAT(error_of([&] { config.check_values(); }),
                HasSubstr("use sharding zero1, or the exchange dense (f32, bf16, f16), loco or zeropp"));
  }
  ExchangeConfig int8 = DenseOptions{.wire = DenseOptions::Wire::int8};
  int8.sharding = Sharding::zero2;
  EXPECT_THAT(error_of([&] { int8.check_values(); }), HasSubstr("dense in int8 gives it to every rank"));
  ExchangeConfig unsharded = "dense";
  unsharded.parameter_wire = ParameterWire::bf16;
  EXPECT_THAT(error_of([&] { unsharded.check_values(); }), HasSubstr("parameter_wire bf16"));
}

TEST(ExchangeMethods, ContradictionsNameTheRemedy) {
  EXPECT_THAT(error_of([] { ExchangeConfig(DenseOptions{.error_feedback = ErrorFeedback::both}).check_values(); }),
              HasSubstr("error_feedback both needs wire int8, but the wire is f32; set exchange.wire=int8"));
  ExchangeConfig topk = "topk";
  topk.set("error_feedback", "both");
  EXPECT_THAT(error_of([&] { topk.check_values(); }), HasSubstr("set exchange.reply=coded"));
}

TEST(ExchangeMethods, RefuseInvalidInputs) {
  run_local({2, 1}, [](Communicator& comm) {
    const Buckets buckets({{"w", Var(Tensor::zeros({6}), true), true}}, {});
    const Buckets wide({{"w", Var(Tensor::zeros({6}, DType::f64), true), true}}, {});
    const auto refusal = [&](const ExchangeConfig& config) {
      return error_of([&] { make_exchange(config, buckets, comm, 1); });
    };
    const auto unknown = [&](const char* name, const char* option, const char* value) {
      return error_of([&] { ExchangeConfig(name).set(option, value); });
    };
    const auto expect = [](const std::string& error, const char* part) {
      EXPECT_NE(error.find(part), std::string::npos) << error;
    };
    for (const int64_t levels : {0, -1, 128})
      expect(refusal(QsgdOptions{.levels = levels}), "qsgd: levels expects an integer in [1, 127], got ");
    expect(refusal(QsgdOptions{.block_size = -1}), "block_size expects an integer of at least 0, got -1");
    ExchangeConfig whole = EfSignSgdOptions{.block_size = -1};
    whole.sharding = Sharding::zero1;
    EXPECT_NO_THROW(whole.check_values());
    whole.parameter_wire = ParameterWire::int8;
    expect(refusal(whole), "ef_signsgd: block_size -1 is one block for the whole model; with parameter_wire int8, ");
    expect(unknown("qsgd", "reply", "codded"), "did you mean 'coded'");
    expect(unknown("qsgd", "error_feedback", "all"), "error_feedback 'all'");
    expect(refusal(QsgdOptions{.error_feedback = ErrorFeedback::both}), "exchange.reply=coded");
    expect(refusal(QsgdOptions{.error_feedback = ErrorFeedback::worker, .levels = 1}), "at most 4·levels²");
    // Blocks of exactly 4·levels² values, and blocks that are longer than every parameter, are allowed.
    for (const auto& [size, levels] : {std::pair{4, 1}, {99, 2}})
      make_exchange(QsgdOptions{.block_size = size, .error_feedback = ErrorFeedback::worker, .levels = levels}, buckets,
                    comm, 1);
    for (const double density : {0.0, -0.5, 1.5, static_cast<double>(NAN)})
      expect(refusal(TopKOptions{.density = density}), "topk: density expects a finite number in (0, 1]");
    expect(unknown("ef21", "compressor", "qsgd"), "compressor 'qsgd'");
    expect(refusal(Ef21Options{.compressor = Ef21Options::Compressor::one_bit, .density = 0.05}),
           "ef21: compressor one_bit does not read density, which is 0.05");
    expect(refusal(Ef21Options{.reply = Reply::coded}), "ef21: reply: no such reply 'coded'; available: f32, none");
    expect(refusal(TernGradOptions{.clip_sigma = NAN}), "clip_sigma");
    expect(unknown("hierarchical", "wire", "int8"), "exchange dense");
    for (const char* name : {"dense", "hierarchical"})
      expect(refusal(ExchangeConfig(name, R"({"wire": "auto"})")), "wire is auto");
    expect(error_of([&] { make_exchange("qsgd", wide, comm, 1); }), "float64");
  });
}

TEST(ExchangeMethods, ChoicesThatAMethodDoesNotTakeAreRefused) {
  for (const char* name : {"randomk", "powersgd"})
    for (const char* feedback : {"both", "server"})
      EXPECT_EQ(
          error_of([&] { ExchangeConfig(name).set("error_feedback", feedback); }),
          detail::concat(name, ": error_feedback: no such error_feedback '", feedback, "'; available: worker, none"));
  EXPECT_EQ(error_of([] { ExchangeConfig("ef21").set("reply", "coded"); }),
            "ef21: reply: no such reply 'coded'; available: f32, none");
  for (const char* name : {"loco", "loco_zeropp"})
    for (const int bits : {-1, 0, 2, 5})
      EXPECT_EQ(error_of([&] { ExchangeConfig(name).set("bits", bits); }),
                detail::concat(name, ": bits expects one of 1, 4, 8, got ", bits));
  // Values that a program sets directly.
  EXPECT_THAT(error_of([] { ExchangeConfig(Ef21Options{.reply = Reply::coded}).check_values(); }),
              HasSubstr("ef21: reply: no such reply 'coded'"));
  EXPECT_THAT(error_of([] { ExchangeConfig(RandomKOptions{.error_feedback = ErrorFeedback::both}).check_values(); }),
              HasSubstr("randomk: error_feedback: no such error_feedback 'both'"));
  EXPECT_THAT(error_of([] { ExchangeConfig(LocoOptions{.bits = 2}).check_values(); }),
              HasSubstr("loco: bits expects one of 1, 4, 8, got 2"));
}

TEST(ExchangeMethods, LocoWarnsThatAFixedScaleOfOneBitIsNotChecked) {
  const auto notices = [](const ExchangeConfig& config) { return config.method().notices(config.options()); };
  EXPECT_THAT(notices("loco"), SizeIs(0));
  EXPECT_THAT(notices(LocoOptions{.bits = 1}), SizeIs(0));
  EXPECT_THAT(notices(LocoOptions{.bits = 4, .scale = "2^19"}), SizeIs(0));
  const std::vector<std::string> lines = notices(LocoOptions{.bits = 1, .scale = "2^19"});
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THAT(lines[0], HasSubstr("exchange.scale=2^19"));
}

}  // namespace exchange_methods_test
}  // namespace godwit
