#include "apps/config/command_line.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/text/gpt_config.h"
#include "apps/text/lm_config.h"
#include "engine/check.h"
#include "engine/device.h"
#include "optim/adam.h"
#include "tests/apps/config/parse.h"

namespace godwit::apps {
namespace command_line_test {

TEST(CommandLine, ModelOptionsApplyToTheirNetworks) {
  const ImageConfig vit = parse({"--set", "model.patch_size=2", "--model", "vit_tiny", "--set", "model.dropout=0.1"});
  EXPECT_EQ(vit.model.name, "vit_tiny");
  EXPECT_EQ(vit.model.patch_size, 2);
  EXPECT_EQ(vit.model.dropout, std::vector<double>{0.1});
  expect_parts(error({"--model", "vit_tiny", "--set", "model.small_stem=true"}),
               {"vit_tiny does not read model.small_stem, only a ResNet does"});
  expect_parts(error({"--set", "model.layers=3"}), {"resnet20 does not read model.layers, only a ViT does"});
  expect_parts(error({"--model", "vgg16_cifar", "--set", "model.dropout=0.1"}), {"vgg16_cifar does not read"});
  expect_parts(error({"--model", "vgg16", "--set", "model.dropout=0.1,0.2"}), {"model.dropout has 2 values"});
  expect_parts(error({"--model", "vgg16", "--set", "model.dropout=1"}), {"model.dropout", "[0, 1)"});
  EXPECT_EQ(run({"--model", "vit_tiny", "--print-config"}).printed.find("small_stem"), std::string::npos);
  EXPECT_NE(run({"--help", "vit_tiny"}).printed.find("model.patch_size"), std::string::npos);
  EXPECT_EQ(run({"--help", "vit_tiny"}).printed.find("small_stem"), std::string::npos);
}

// Another model on the command line keeps the applicable options of the file. One notice names the others.
TEST(CommandLine, AnotherModelReplacesTheModelOfTheFile) {
  const std::string file = write_file(R"({"model": {"name": "resnet18", "small_stem": true, "sync_bn": true}})");
  const ImageConfig config = parse({"--config", file, "--model", "vgg16_cifar"});
  EXPECT_EQ(config.model.name, "vgg16_cifar");
  EXPECT_TRUE(config.model.sync_bn);
  ASSERT_EQ(config.notices.size(), 1u);
  expect_parts(config.notices[0], {"not used: model.small_stem, because the command line chooses model vgg16_cifar"});
  EXPECT_TRUE(parse({"--config", file, "--model", "resnet34"}).notices.empty());
  expect_parts(error({"--config", file, "--model", "vgg16_cifar", "--set", "model.small_stem=true"}),
               {"does not read model.small_stem"});
}

TEST(CommandLine, Defaults) {
  const ImageConfig config = parse({});
  EXPECT_EQ(config.model.name, "resnet20");
  EXPECT_EQ(config.optimizer.name(), "sgdm");
  EXPECT_EQ(config.optimizer.number("lr"), OptimizerConfig("sgdm").number("lr"));
  EXPECT_EQ(config.exchange.name(), "dense");
  EXPECT_EQ(config.nodes, 1);
}

TEST(CommandLine, EveryFlagSetsItsMember) {
  const ImageConfig c = parse({"--model",
                               "resnet56",
                               "--data",
                               "/d",
                               "--optimizer=sgdm",
                               "--lr",
                               "0.25",
                               "--exchange",
                               "hierarchical",
                               "--epochs",
                               "3",
                               "--max-steps",
                               "7",
                               "--batch=5",
                               "--nodes",
                               "4",
                               "--workers-per-node",
                               "2",
                               "--device",
                               "auto",
                               "--dtype",
                               "bf16",
                               "--seed",
                               "18446744073709551615",
                               "--threads",
                               "3",
                               "--run-dir",
                               "r",
                               "--check-replicas",
                               "9",
                               "--init-weights",
                               "w.safetensors"});
  EXPECT_EQ(c.model.name, "resnet56");
  EXPECT_EQ(c.data.path, "/d");
  EXPECT_EQ(c.optimizer.name(), "sgdm");
  EXPECT_EQ(c.optimizer.number("lr"), 0.25);
  EXPECT_EQ(c.exchange.name(), "hierarchical");
  EXPECT_EQ(c.epochs, 3);
  EXPECT_EQ(c.max_steps, 7);
  EXPECT_EQ(c.batch, 5);
  EXPECT_EQ(c.nodes, 4);
  EXPECT_EQ(c.workers_per_node, 2);
  EXPECT_EQ(c.device, cuda_devices() > 0 ? "cuda" : "cpu");
  EXPECT_EQ(c.dtype, "bf16");
  EXPECT_EQ(c.seed, UINT64_MAX);
  EXPECT_EQ(c.threads, 3);
  EXPECT_EQ(c.run_dir, "r");
  EXPECT_EQ(c.check_replicas, 9);
  EXPECT_EQ(c.init_weights, "w.safetensors");
}

TEST(CommandLine, TheLastValueWins) {
  EXPECT_EQ(parse({"--lr", "1", "--set", "optimizer.lr=2"}).optimizer.number("lr"), 2);
  EXPECT_EQ(parse({"--set", "optimizer.lr=2", "--lr", "1"}).optimizer.number("lr"), 1);
  EXPECT_EQ(parse({"--lr", "1", "--set", "optimizer.lr=2", "--lr=3"}).optimizer.number("lr"), 3);
  EXPECT_EQ(parse({"--lr", "7", "--optimizer", "birder"}).optimizer.number("lr"), 7);
  EXPECT_EQ(parse({"--optimizer", "adamw"}).optimizer.number("weight_decay"),
            OptimizerConfig("adamw").number("weight_decay"));
  const std::string file = write_file(R"({"epochs": 9, "batch": 3, "optimizer": {"name": "adam", "lr": 5}})");
  const ImageConfig config = parse({"--epochs", "2", "--config", file});
  EXPECT_EQ(config.epochs, 2);
  EXPECT_EQ(config.batch, 3);
  EXPECT_EQ(config.optimizer.name(), "adam");
  EXPECT_EQ(config.optimizer.number("lr"), 5);
}

TEST(CommandLine, OptionsOfAReplacedMethodAreIgnored) {
  const std::string file = write_file(
      R"({"optimizer": {"name": "sgdm", "lr": 5, "momentum": 0.5}, "exchange": "dense", "schedule": {"name": "cosine", "final_fraction": 0.5}})");
  const ImageConfig config = parse({"--config", file, "--optimizer", "birder", "--set", "schedule=multi_step"});
  EXPECT_EQ(config.optimizer.number("lr"), OptimizerConfig("birder").number("lr"));
  EXPECT_TRUE(config.optimizer.method().communicates_itself);
  EXPECT_EQ(config.schedule.name, "multi_step");
  EXPECT_EQ(config.schedule.final_fraction, 0);
  EXPECT_EQ(parse({"--config", file, "--optimizer", "sgdm"}).optimizer.number("momentum"), 0.5);
  const std::string birder = write_file(R"({"optimizer": {"name": "birder", "beta": 0.5}})");
  EXPECT_EQ(parse({"--config", birder, "--optimizer", "binsgdm"}).optimizer.number("beta"), 0.5);
}

TEST(CommandLine, ReplacingTheOptimizerKeepsTheExchangeOfTheFile) {
  const std::string file =
      write_file(R"({"optimizer": {"name": "adamw", "lr": 5}, "exchange": {"name": "powersgd", "rank": 7}})");
  const ImageConfig config = parse({"--config", file, "--optimizer", "sgdm"});
  EXPECT_EQ(config.exchange.name(), "powersgd");
  EXPECT_EQ(config.exchange.number("rank"), 7);
  EXPECT_EQ(config.notices, std::vector<std::string>{file + ": not used: optimizer.lr, because the command line "
                                                            "chooses optimizer sgdm"});
  EXPECT_TRUE(parse({"--config", file, "--optimizer", "adamw"}).notices.empty());
}

TEST(CommandLine, OptionsOfTheDefaultMethodDoNotApplyToAnother) {
  const std::string file = write_file(R"({"optimizer": {"lr": 5}, "exchange": {"wire": "bf16"}})");
  const ImageConfig same = parse({"--config", file, "--optimizer", "sgdm"});
  const ImageConfig other = parse({"--config", file, "--optimizer", "adamw"});
  EXPECT_EQ(same.optimizer.number("lr"), 5);
  EXPECT_TRUE(same.notices.empty());
  EXPECT_LT(other.optimizer.number("lr"), 1);
  EXPECT_EQ(other.notices, std::vector<std::string>{file + ": not used: optimizer.lr, because the command line chooses "
                                                           "optimizer adamw"});
}

TEST(CommandLine, ChangedOptionsThatAreNotReadAreReported) {
  const auto notices = [](std::vector<std::string> words) {
    for (const char* option : {"share_gpu=true", "tf32=true", "spike.z=4", "spike.window=100"})
      words.insert(words.end(), {"--set", option});
    return parse(words).notices;
  };
  EXPECT_EQ(notices({"--device", "cpu"}), std::vector<std::string>{"not used: share_gpu, tf32, because the device is "
                                                                   "cpu; spike.z, because spike.guard is off"});
  EXPECT_EQ(notices({"--device", "cpu", "--set", "spike.guard=skip"}),
            std::vector<std::string>{"not used: share_gpu, tf32, because the device is cpu"});
}

// A saved configuration has the defaults of ignored options, which are not reported.
TEST(CommandLine, OptionsOfAFileThatContradictEachOtherAreReported) {
  const auto notices = [](const std::string& hold_out) {
    const std::string data = R"({"data": {"path": "a.txt", "test": "b.txt", "hold_out": )" + hold_out + "}}";
    return parse_text({"--config", write_file(data)}).notices;
  };
  EXPECT_EQ(notices("7"), std::vector<std::string>{"not used: data.hold_out, because data.test is evaluated; leave "
                                                   "one of them out"});
  EXPECT_TRUE(notices(std::to_string(TextDataConfig().hold_out)).empty());
}

TEST(CommandLine, IgnoredPartsOfTheFileAreReported) {
  const std::string file = write_file(
      R"({"optimizer": "adamw", "exchange": {"name": "powersgd", "rank": 7}, "schedule": {"name": "cosine", "final_fraction": 0.5}})");
  EXPECT_EQ(parse({"--config", file, "--optimizer", "birder"}).notices,
            std::vector<std::string>{file + ": not used: exchange.name, exchange.rank, because the command line "
                                            "chooses optimizer birder, which communicates itself"});
  EXPECT_EQ(
      parse({"--config", file, "--exchange", "dense"}).notices,
      std::vector<std::string>{file + ": not used: exchange.rank, because the command line chooses exchange dense"});
  EXPECT_EQ(parse({"--config", file, "--set", "schedule=linear"}).notices,
            std::vector<std::string>{
                file + ": not used: schedule.final_fraction, because the command line chooses schedule linear"});
}

// No optimizer clips gradients by default. Another optimizer keeps the file's clip.norm.
TEST(CommandLine, ClippingDoesNotDependOnTheOptimizer) {
  for (const std::string& name : method_names<OptimizerMethod>())
    EXPECT_EQ(parse_text({"--optimizer", name}).clip.norm, 0);
  const std::string half = write_file(to_json(parse_text({"--optimizer", "birder", "--set", "clip.norm=0.5"})));
  EXPECT_EQ(parse_text({"--config", half, "--optimizer", "adamw"}).clip.norm, 0.5);
}

TEST(CommandLine, TheLastWarmupOptionReplacesTheOthers) {
  const std::string file = write_file(R"({"schedule": {"warmup_epochs": 2, "warmup_fraction": 0, "warmup_steps": 0}})");
  const ScheduleConfig of_file = parse({"--config", file}).schedule;
  EXPECT_EQ(of_file.warmup_epochs, 2);
  const ScheduleConfig steps = parse({"--config", file, "--set", "schedule.warmup_steps=7"}).schedule;
  EXPECT_EQ(steps.warmup_epochs, 0);
  EXPECT_EQ(steps.warmup_steps, 7);
  const ScheduleConfig fraction =
      parse({"--set", "schedule.warmup_steps=7", "--set", "schedule.warmup_fraction=0.5"}).schedule;
  EXPECT_EQ(fraction.warmup_steps, 0);
  EXPECT_EQ(fraction.warmup_fraction, 0.5);
  for (const char* zero : {"0", "0.0", "-0", "-0.0"})
    EXPECT_EQ(parse({"--set", "schedule.warmup_steps=7", "--set", std::string("schedule.warmup_fraction=") + zero})
                  .schedule.warmup_steps,
              7)
        << zero;
  const std::string both = R"({"schedule": {"warmup_steps": 5, "warmup_epochs": 1}})";
  expect_parts(file_error(both), {"schedule.warmup_epochs and schedule.warmup_steps", "leave one of them out"});
  const ScheduleConfig shaped = parse({"--set", "schedule.warmup_power=2", "--set", "schedule.warmup_start=0.1",
                                       "--set", "schedule.warmup_steps=7"})
                                    .schedule;
  EXPECT_EQ(shaped.warmup_power, 2);
  EXPECT_EQ(shaped.warmup_start, 0.1);
}

TEST(CommandLine, ShortForms) {
  const ImageConfig c = parse({"--config", write_file(R"({"model": "resnet32", "optimizer": "adam", "exchange":
      "hierarchical", "data": "folder", "schedule": "cosine"})")});
  EXPECT_EQ(c.model.name, "resnet32");
  EXPECT_EQ(c.optimizer.name(), "adam");
  EXPECT_EQ(c.exchange.name(), "hierarchical");
  EXPECT_EQ(c.data.path, "folder");
  EXPECT_EQ(c.schedule.name, "cosine");
  EXPECT_EQ(parse({"--set", "optimizer=adam"}).optimizer.name(), "adam");
  EXPECT_EQ(parse({"--exchange", "hierarchical", "--set", "exchange.wire=f16"}).exchange.text("wire"), "f16");
  EXPECT_EQ(parse({"--set", R"(optimizer={"name": "adam", "beta1": 0.5})"}).optimizer.number("beta1"), 0.5);
}

TEST(CommandLine, ListsAndText) {
  const Words list = {"--set", "schedule=multi_step", "--set", "schedule.milestones=30,60.5"};
  EXPECT_EQ(parse(list).schedule.milestones, (std::vector<double>{30, 60.5}));
  EXPECT_EQ(parse({"--set", "schedule=multi_step", "--set", "schedule.milestones=[1, 2]"}).schedule.milestones,
            (std::vector<double>{1, 2}));
  EXPECT_FALSE(parse({"--set", "data.flip=false"}).data.flip);
  EXPECT_EQ(parse({"--run-dir", "a=b c"}).run_dir, "a=b c");
  EXPECT_EQ(parse({"--run-dir", "123"}).run_dir, "123");
}

TEST(CommandLine, AnUnknownNameIsRefusedWithASuggestion) {
  expect_parts(error({"--optimiser", "sgd"}), {"--optimiser", "did you mean --optimizer?"});
  expect_parts(error({"--node=4"}), {"no such flag --node;", "--nodes"});
  expect_parts(error({"-lr", "1"}), {"--lr"});
  expect_parts(error({"--momentum", "1"}), {"--set optimizer.momentum=VALUE"});
  expect_parts(error({"--frobnicate"}), {"no such flag --frobnicate", "--help"});
  expect_parts(error({"--batch-size", "8"}), {"no such flag --batch-size; did you mean --batch?"});
  expect_parts(error({"--batch_size", "8"}), {"no such flag --batch_size; did you mean --batch?"});
  expect_parts(error({"--learning-rate=1"}), {"no such flag --learning-rate; did you mean --lr?"});
  expect_parts(error({"--optimizer-lr", "1"}), {"no such flag --optimizer-lr; did you mean --lr?"});
  expect_parts(error({"--exchange-sharding", "zero1"}), {"write --set exchange.sharding=VALUE"});
  expect_parts(error({"--"}), {"no such flag --"});
  expect_parts(error({"train"}), {"unexpected argument 'train'"});
  expect_parts(error({"--optimizer", "birdr"}), {"--optimizer", "birdr", "did you mean 'birder'?"});
  expect_parts(error({"--optimizer", "foo", "--optimizer", "adamw"}), {"no such optimizer 'foo'"});
  expect_parts(error({"--warmup-steps", "9"}), {"--set schedule.warmup_steps=VALUE"});
  expect_parts(error({"--optimizer", "adam", "--set", "optimizer.eps=1e-60"}),
               {"above 0, also as float32, got '1e-60'"});
  expect_parts(error({"--optimizer", "xyzzy"}), {"xyzzy", "available: sgd, sgdm"});
  expect_parts(error({"--exchange", "denze"}), {"denze", "dense"});
  expect_parts(error({"--set", "exchange.wire=f8"}), {"exchange.wire 'f8'", "f16"});
  expect_parts(error({"--exchange", "ef21", "--set", "exchange.reply=coded"}),
               {"--set exchange.reply: no such exchange.reply 'coded' for ef21; available: f32, none"});
  expect_parts(error({"--exchange", "loco", "--set", "exchange.bits=2"}),
               {"--set exchange.bits expects one of 1, 4, 8 for loco, got '2'"});
  expect_parts(file_error(R"({"exchange": {"name": "loco_zeropp", "bits": 3}})"),
               {"exchange.bits expects one of 1, 4, 8 for loco_zeropp, got 3"});
  expect_parts(error({"--model", "resnet21"}), {"model 'resnet21'", "resnet20"});
  expect_parts(error({"--set", "schedule=cosin"}), {"schedule 'cosin'", "cosine"});
  expect_parts(error({"--set", "optimizer=birder", "--set", "optimizer.quantizer=rnadom"}), {"rnadom", "random"});
  expect_parts(error({"--set", "optimizer.learning=1"}), {"optimizer.learning"});
  expect_parts(error({"--set", "optimzer.lr=1"}), {"'optimzer.lr'", "'optimizer.lr'"});
  expect_parts(error({"--set", "lr=1"}), {"'lr'", "'optimizer.lr'"});
  expect_parts(file_error(R"({"optimizer": {"momentun": 0.9}})"),
               {".json", "'optimizer.momentun'", "'optimizer.momentum'"});
  expect_parts(file_error(R"({"optimzer": {"lr": 1}})"), {"'optimzer'", "did you mean 'optimizer'?"});
  expect_parts(file_error(R"({"epoch": 3})"), {"'epoch'", "'epochs'"});
  expect_parts(file_error(R"({"zzzzzzzz": {}})"), {"'zzzzzzzz'"});
}

TEST(CommandLine, RefusesInvalidValues) {
  for (const char* lr : {"nan", "NaN", "inf", "-inf", "-0.1", "fast", "1e999", "", "0.1x", "--batch"})
    expect_parts(error({"--lr=" + std::string(lr)}), {"--lr"});
  expect_parts(error({"--lr", "nan"}), {"--lr expects a finite number of at least 0, got 'nan'"});
  expect_parts(error({"--lr", "-1"}), {"got '-1'"});
  for (const char* count : {"0", "-3", "1.5", "two", "99999999999999999999", "2147483648"})
    for (const char* flag : {"--nodes", "--workers-per-node", "--batch", "--epochs"})
      if (std::string(count) != "2147483648" || std::string(flag) != "--epochs")
        expect_parts(error({flag, count}), {flag, "expects an integer", count});
  expect_parts(error({"--epochs", "2000000000"}), {"in [1, 1e+09]"});
  for (const char* seed : {"-1", "18446744073709551616", "0.5", "x"})
    expect_parts(error({"--seed", seed}), {"--seed expects an integer from 0", seed});
  expect_parts(error({"--set", "data.flip=1"}), {"data.flip expects true or false, got '1'"});
  expect_parts(error({"--set", "data.label_smoothing=1"}), {"in [0, 1)"});
  expect_parts(error({"--set", "bucket.mib=0"}), {"bucket.mib"});
  expect_parts(error({"--set", "bucket=25"}), {"bucket", "group"});
  expect_parts(error({"--set", "optimizer.lr"}), {"KEY=VALUE", "optimizer.lr"});
  expect_parts(error({"--set", "=3"}), {"KEY=VALUE"});
  expect_parts(error({"--set", "schedule=multi_step", "--set", "schedule.milestones=1,,2"}), {"list of numbers"});
  expect_parts(error({"--set", "schedule=multi_step", "--set", "schedule.milestones=1,nan"}), {"finite"});
  expect_parts(error({"--set", "schedule=multi_step", "--set", "schedule.milestones=60,30"}),
               {"schedule.milestones must ascend, but 30 follows 60"});
  expect_parts(error({"--set", "data.crop=32", "--set", "data.resize=31"}), {"data.resize 31 is below data.crop 32"});
  expect_parts(error({"--set", "data.resize=223"}), {"data.resize 223 is below data.crop 224"});
  expect_parts(error({"--set", "data.std=1e-60"}), {"data.std: 1e-60 is 0 in float32"});
  expect_parts(error({"--set", "data.mean=1e300"}), {"data.mean: 1e+300"});
  expect_parts(error({"--set", "data.mean=0.5", "--set", "data.std=0.5,0.5"}),
               {"data.mean has 1 and data.std 2 values"});
  expect_parts(error({"--set", "data.crop=32", "--set", "data.std=0.5,0.5"}), {"data.std has 2 values", "three"});
  expect_parts(error({"--nodes", "1024", "--workers-per-node", "1024"}), {"1048576 workers"});
  expect_parts(error({"--lr"}), {"--lr expects a value"});
  expect_parts(error({"--epochs", "--batch", "4"}), {"--epochs expects a value, got the flag --batch"});
  expect_parts(error({"--dtype", "f16"}), {"--dtype: no such dtype 'f16'", "bf16"});
  if (cuda_devices() == 0)
    expect_parts(error({"--device", "cuda:0"}), {"--device: 'cuda:0' is not available: ", why_no_cuda()});
  expect_parts(error({"--device", "gpu"}), {"--device: unknown device 'gpu'", "cuda:N"});
  expect_parts(error({"--run-dir", "\xff"}), {"UTF-8"});
}

TEST(CommandLine, RefusesEmptyValues) {
  for (const char* flag : {"--data", "--init-weights", "--run-dir", "--lr", "--optimizer"}) {
    EXPECT_EQ(error({flag, ""}), std::string(flag) + " expects a value, got nothing");
    EXPECT_EQ(error({std::string(flag) + "=", "next"}), std::string(flag) + " expects a value, got nothing");
  }
  for (const char* key : {"data.path", "data", "schedule.milestones", "optimizer.lr"})
    EXPECT_EQ(error({"--set", std::string(key) + "="}), "--set " + std::string(key) + " expects a value, got nothing");
  EXPECT_EQ(error({"--optimizer", "birder", "--set", "optimizer.frozen="}), "no error");
  expect_parts(error({"--set", ""}), {"KEY=VALUE"});
  EXPECT_EQ(error({"--config", ""}), "--config expects a file, got nothing");
  EXPECT_EQ(error({"--config="}), "--config expects a file, got nothing");
  EXPECT_EQ(parse({"--config", write_file(R"({"run_dir": "", "data": {"path": ""}})")}).run_dir, "");
  expect_parts(file_error(R"({"run_dir": "a\u0000b"})"), {"run_dir expects text without NUL", R"("a\u0000b")"});
}

TEST(CommandLine, HelpAndPrintConfigTakeNoValue) {
  for (const char* word : {"--print-config=false", "--print-config=1", "--help=3", "-h=3", "--help=", "--version=1"})
    expect_parts(error({word}), {"takes no value"});
}

TEST(CommandLine, BucketSizesAndThreadsAreBounded) {
  for (const char* key : {"bucket.mib", "bucket.first_mib"}) {
    EXPECT_EQ(error({"--set", std::string(key) + "=0.0009765625"}), "no error");
    expect_parts(error({"--set", std::string(key) + "=0.0009"}), {key, "in [0.0009765625, 1048576]", "'0.0009'"});
  }
  EXPECT_EQ(parse({"--set", "bucket.mib=auto"}).bucket.mib, "auto");
  EXPECT_EQ(parse({"--config", write_file(R"({"bucket": {"mib": 7.5}})")}).bucket.mib, "7.5");
  expect_parts(error({"--set", "bucket.mib=atuo"}), {"bucket.mib expects auto or a number in [", "'atuo'"});
  EXPECT_EQ(parse({"--threads", "1024"}).threads, 1024);
  expect_parts(error({"--threads", "1025"}), {"--threads", "in [0, 1024]"});
  expect_parts(error({"--threads", "-1"}), {"--threads"});
}

TEST(CommandLine, AScaleMayBeANumberOrText) {
  const auto scale_of = [](const std::string& json) {
    const std::string file = R"({"exchange": {"name": "loco", "scale": )" + json + "}}";
    const ImageConfig config = parse({"--config", write_file(file)});
    const std::string scale = config.exchange.text("scale");
    EXPECT_EQ(parse({"--config", write_file(to_json(config))}).exchange.text("scale"), scale);
    return scale;
  };
  EXPECT_EQ(scale_of("524288"), "524288");
  EXPECT_EQ(scale_of("0.5"), "0.5");
  expect_parts(file_error(R"({"exchange": {"name": "loco", "scale": -1}})"), {"scale '-1'", "2^-60"});
  EXPECT_EQ(scale_of("\"2^19\""), "2^19");
  expect_parts(file_error(R"({"exchange": {"name": "loco", "scale": [1]}})"),
               {"scale expects text or a number, got ["});
  expect_parts(file_error(R"({"run_dir": 3})"), {"run_dir expects text, got 3"});
}

TEST(CommandLine, RefusesKeysThatTheMethodDoesNotRead) {
  expect_parts(error({"--set", "validation=5", "--set", "checkpoint.best=test_top1"}),
               {"checkpoint.best is test_top1, but with validation it is named validation_top1"});
  expect_parts(error({"--optimizer", "adam", "--set", "optimizer.momentum=0.5"}),
               {"adam does not read optimizer.momentum", "beta1"});
  expect_parts(error({"--set", "schedule.gamma=0.5"}), {"cosine does not read schedule.gamma", "warmup_epochs"});
  expect_parts(error({"--optimizer", "birder", "--exchange", "dense"}), {"--exchange", "birder communicates itself"});
  expect_parts(file_error(R"({"optimizer": "birder", "exchange": "dense"})"), {"exchange", "birder"});
  expect_parts(error({"--optimizer", "birder", "--set", "exchange.wire=bf16"}), {"exchange.wire", "birder"});
  expect_parts(error({"--optimizer", "birder", "--set", "exchange.sharding=zero1"}),
               {"exchange.sharding: birder keeps state of all parameters", "only hybrid divides", "such as adamw"});
}

TEST(CommandLine, RefusesInvalidFiles) {
  expect_parts(error({"--config", "/nowhere/x.json"}), {"/nowhere/x.json", "No such file"});
  expect_parts(error({"--config", testing::TempDir()}), {"folder"});
  expect_parts(error({"--config", "a", "--config", "b"}), {"--config"});
  expect_parts(file_error("{\"epochs\": 1,\n \"batch\": }"), {".json", "line 2, column 11"});
  expect_parts(file_error("{\"epochs\": 1} x"), {"line 1, column 15"});
  expect_parts(file_error("{\"epochs\": 1"), {"line 1"});
  expect_parts(file_error(""), {"line 1"});
  expect_parts(file_error("{\"epochs\": 1 // comment\n}"), {"line 1, column 14"});
  expect_parts(file_error("{\"optimizer\": {\"lr\": NaN}}"), {"line 1, column 22"});
  expect_parts(file_error("{\"optimizer\": {\"lr\": 1e999}}"), {"1e999"});
  expect_parts(file_error("[1]"), {"expects a JSON object", "[1]"});
  expect_parts(file_error("3"), {"expects a JSON object"});
  expect_parts(file_error(std::string(2 << 20, ' ')), {"1 MiB"});
  expect_parts(file_error("{\"run_dir\": \"\xff\"}"), {".json"});
  expect_parts(file_error(R"({"epochs": 1, "epochs": 2})"), {"names \"epochs\" twice"});
  expect_parts(file_error(R"({"optimizer": {"lr": 1, "lr": 2}})"), {"names \"optimizer.lr\" twice"});
  expect_parts(file_error(R"({"optimizer.lr": 1})"), {"optimizer.lr", "nest"});
  expect_parts(file_error(R"({"optimizer": 3})"), {"optimizer expects an object or a text, got 3"});
  expect_parts(file_error(R"({"bucket": "big"})"), {"bucket expects an object"});
  expect_parts(file_error(R"({"optimizer": {"lr": "0.1"}})"), {"optimizer.lr expects a finite number", "\"0.1\""});
  expect_parts(file_error(R"({"epochs": null})"), {"epochs expects an integer", "null"});
  expect_parts(file_error(R"({"epochs": 2.0})"), {"epochs expects an integer", "2.0"});
  expect_parts(file_error(R"({"epochs": true})"), {"epochs expects an integer", "true"});
  expect_parts(file_error(R"({"epochs": {"a": 1}})"), {"epochs expects an integer"});
  expect_parts(file_error(R"({"model": {"small_stem": 0}})"), {"model.small_stem expects true or false, got 0"});
  expect_parts(file_error(R"({"run_dir": 5})"), {"run_dir expects text, got 5"});
  expect_parts(file_error(R"({"nodes": -2})"), {"nodes", "-2"});
  expect_parts(file_error(R"({"schedule": {"name": "multi_step", "milestones": [1, "a"]}})"), {"list of numbers"});
  for (const char* open : {"[", "{\"a\": "}) {
    std::string deep;
    for (int i = 0; i < 50000; ++i) deep += open;
    expect_parts(file_error(deep), {".json", "is nested more than 16"});
  }
  const std::string sixteen = std::string(16, '[') + std::string(16, ']');
  expect_parts(file_error(sixteen), {"expects a JSON object"});
  expect_parts(file_error("[" + sixteen + "]"), {"is nested more than 16"});
  expect_parts(error({"--set", "optimizer={\"lr\": [" + sixteen + "]}"}),
               {"--set optimizer", "is nested more than 16"});
}

TEST(CommandLine, ARunDirectoryOfAnotherVersionNamesTheRemedy) {
  const std::filesystem::path folder = testing::TempDir() + "/godwit_run_of_another_version";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"optimizer": {"name": "birder", "rounding": "up"}})";
  const std::string hint = "if another program or version of Godwit wrote this file, continue the run with that one";
  expect_parts(error({"--resume", folder.string()}), {"config.json: no such key 'optimizer.rounding'", hint});
  EXPECT_EQ(error({"--config", (folder / "config.json").string()}).find(hint), std::string::npos);
}

// Each program reads its own configuration and names the program of another one.
TEST(CommandLine, AFileOfAnotherProgramIsRefused) {
  const std::filesystem::path folder = testing::TempDir() + "/godwit_run_of_another_program";
  std::filesystem::create_directories(folder);
  const std::string file = (folder / "config.json").string();
  const Program* programs[] = {&image_program(), &text_program(), &gpt_program(), &lm_program()};
  const auto error_with = [&](const Program& program, const char* flag, const std::string& path) -> std::string {
    const char* words[] = {"", flag, path.c_str()};
    std::ostringstream out;
    try {
      EXPECT_EQ(parse_command_line(program, 3, words, out)->program, program.name);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  for (const Program* writer : programs) {
    std::ofstream(file) << to_json(*default_config(*writer));
    for (const Program* reader : programs) {
      std::string refusal;
      if (writer != reader)
        refusal = file + ": was written by " + writer->name + ", and " + reader->name + " cannot read it; use " +
                  writer->name;
      EXPECT_EQ(error_with(*reader, "--config", file), refusal);
      EXPECT_EQ(error_with(*reader, "--resume", folder.string()), refusal);
    }
  }
  expect_parts(file_error(R"({"program": 5})"), {"program expects a name such as \"train_resnet\", got 5"});
}

TEST(CommandLine, PrintedConfigurationRoundTrips) {
  const std::vector<Words> lines = {
      {},
      {"--optimizer", "birder", "--nodes", "8", "--lr", "0.1000000000000000055511151231257827"},
      {"--optimizer", "adam", "--set", "optimizer.eps=1e-37", "--set", "optimizer.beta2=0.9999998999999999"},
      {"--seed", "18446744073709551615", "--max-steps", "1000000000000000", "--run-dir", "a \"b\" \\ \n ü"},
      {"--optimizer", "softsignsgd", "--exchange", "hierarchical", "--set", "schedule=polynomial", "--set",
       "schedule.power=0.3333333333333333", "--set", "bucket.first_mib=0.1"},
      {"--set", "schedule=multi_step", "--set", "schedule.milestones=0.1,2,1e22"}};
  for (Words words : lines) {
    const std::string json = to_json(parse(words));
    words.push_back("--print-config");
    const Answer answer = run(words);
    EXPECT_FALSE(answer.config);
    EXPECT_EQ(answer.printed, json + "\n");
    const ImageConfig again = parse({"--config", write_file(answer.printed)});
    EXPECT_EQ(to_json(again), json);
    const ImageConfig before = parse({words.begin(), words.end() - 1});
    const OptionList options = before.options(), options_again = again.options();
    ASSERT_EQ(options.names(), options_again.names());
    for (size_t i = 0; i < options.size(); ++i)
      if (options[i].inapplicable.empty()) {
        EXPECT_EQ(value_text(options_again[i]), value_text(options[i])) << options[i].name;
      }
  }
}

TEST(CommandLine, DefaultsOfTrainBertFollowTheTaskAndTheOptimizer) {
  const TextConfig pretrain = parse_text({});
  EXPECT_EQ(pretrain.task, "pretrain");
  EXPECT_EQ(pretrain.optimizer.name(), "adamw");
  EXPECT_EQ(pretrain.optimizer.number("lr"), 4e-4);
  EXPECT_FALSE(pretrain.optimizer.as<AdamW::Options>().decay_norm_and_bias);
  EXPECT_EQ(pretrain.schedule.name, "linear");
  EXPECT_EQ(pretrain.schedule.warmup_fraction, 0.1);
  const TextConfig squad = parse_text({"--optimizer", "birder", "--task", "squad", "--data", "d"});
  EXPECT_EQ(squad.data.length, 384);
  EXPECT_EQ(squad.batch, 8);
  EXPECT_EQ(squad.optimizer.number("lr"), 1e-4);
  EXPECT_EQ(squad.optimizer.number("beta"), 0.9);
  EXPECT_EQ(parse_text({"--length", "64", "--task", "squad", "--data", "d"}).data.length, 64);
  EXPECT_EQ(parse_text({"--set", "schedule.warmup_steps=500"}).schedule.warmup_fraction, 0);
  EXPECT_EQ(parse_text({"--set", "model.dropout=0.1,0.2"}).model.dropout, (std::vector<double>{0.1, 0.2}));
}

// Keys that a task does not read are neither printed nor accepted.
TEST(CommandLine, TasksOfTrainBertHaveTheirOwnKeys) {
  const TextConfig classify = parse_text({"--task", "classify", "--data", "d"});
  const std::string json = to_json(classify);
  EXPECT_EQ(json.find("doc_stride"), std::string::npos) << json;
  EXPECT_EQ(json.find("masked"), std::string::npos) << json;
  EXPECT_NE(json.find("test_limit"), std::string::npos) << json;
  const TextConfig again = parse_text({"--config", write_file(json)});
  EXPECT_EQ(to_json(again), json);
  EXPECT_THROW(parse_text({"--set", "data.test_limit=5"}), Error);
}

TEST(CommandLine, SummaryContainsEverySettingOnce) {
  const std::string text = summary(parse({"--optimizer", "birder", "--nodes", "8"}), {{"parameters", "272,474"}});
  for (const char* part : {"model       resnet20", "optimizer   birder", "nodes=8", "bucket.first_mib=1",
                           "bucket.mib=25", "threads=0", "parameters  272,474"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_EQ(text.find("momentum"), std::string::npos);
  EXPECT_EQ(text.find("exchange"), std::string::npos);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

// Reading time must be linear in the number of keys.
TEST(CommandLine, ReadsManyKeysInLinearTime) {
  std::string text = "{\"0\":{}";
  for (int i = 1; i < 90000; ++i) text += ",\"" + std::to_string(i) + "\":{}";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(error({"--config", write_file(text + "}")}).find("no such key '0'"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15)) << "expected 0.2 s";
}

TEST(CommandLine, MessagesTruncateAndEscapeQuotedText) {
  const std::string name = "\\u001b[2Jx\\n" + std::string(500000, 'y'), raw = "\x1b[2Jx\n" + std::string(100000, 'y');
  const std::vector<Words> lines = {{"--config", write_file("{\"" + name + "\": 1}")},
                                    {"--config", write_file("{\"" + name + "\": 1, \"" + name + "\": 1}")},
                                    {"--config", write_file("{\"optimizer\": {\"" + name + "\": 1}}")},
                                    {"--config", write_file("{\"optimizer\": {\"name\": \"" + name + "\"}}")},
                                    {"--config", write_file("{\"epochs\": \"" + name + "\"}")},
                                    {"--config", write_file("{" + std::string(500000, 'z'))},
                                    {"--config", write_file("{\"\x1b[2J\n")},
                                    {"--set", raw},
                                    {"--set", raw + "=1"},
                                    {"--set", "epochs=" + raw},
                                    {"--set", "optimizer.name=" + raw},
                                    {"--epochs", raw},
                                    {"--" + raw},
                                    {raw},
                                    {"--help=" + raw}};
  for (const Words& words : lines) {
    const std::string text = error(words);
    EXPECT_NE(text, "no error");
    EXPECT_LT(text.size(), 500u) << words[0] << " " << words.back().substr(0, 20);
    for (const char c : text) EXPECT_GE(static_cast<unsigned char>(c), 32) << text.substr(0, 200);
  }
}

}  // namespace command_line_test
}  // namespace godwit::apps
