// train_gpt, run from the command line: reproducibility, data parallelism, figures of evaluations, HuggingFace folders,
// and rejection of invalid input.
#include <cmath>
#include <set>

#include "engine/safetensors.h"
#include "models/weights_folder.h"
#include "tests/apps/programs/train_gpt.h"
#include "tests/mpirun.h"

namespace godwit {
namespace train_gpt_test {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr, ::testing::Not;
using namespace std::string_literals;

TEST_F(TrainGpt, RunsAreReproducible) {
  const std::string flags =
      "--optimizer birder --nodes 2 --workers-per-node 2 --batch 2 --set log_every=1 --check-replicas 1 "
      "--accumulation 2 --set model.dropout=0.2 --set evaluate_every=3";
  const Outcome outcome = done(flags);
  EXPECT_NE(outcome.out.find("sample:\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("tokens/s"), std::string::npos) << outcome.out;
  ASSERT_EQ(metrics().size(), 6u) << "four steps and evaluations after steps 3 and 4";
  const std::string samples = read_file(run_dir() / "samples.txt");
  EXPECT_TRUE(samples.starts_with("step 3\n")) << samples;
  EXPECT_NE(samples.find("\n--------\n\nstep 4\n"), std::string::npos) << samples;
  expect_config_repeats_the_run({"model/model.safetensors", "samples.txt"});
}

TEST_F(TrainGpt, RecomputedActivationsChangeNoBit) {
  const std::string flags =
      "--nodes 2 --accumulation 2 --set log_every=1 --set model.dropout=0.2 --set model.recompute=";
  done(flags + "false");
  const std::string first = results(metrics());
  const std::string weights = read_file(run_dir() / "model/model.safetensors");
  for (const char* layers : {"1", "true"}) {
    fs::remove_all(run_dir());
    done(flags + layers);
    EXPECT_EQ(results(metrics()), first) << layers;
    EXPECT_EQ(read_file(run_dir() / "model/model.safetensors"), weights) << layers;
  }
}

// A bit per byte is ln 2 nats. In ASCII text every character is a byte.
TEST_F(TrainGpt, EvaluationsReportLossPerplexityAndBitsPerByte) {
  done("--set data.valid=valid.txt");
  const json last = metrics().back();
  const double loss = last["val_loss"];
  EXPECT_NEAR(last["perplexity"].get<double>(), std::exp(loss), 1e-6);
  EXPECT_NEAR(last["bits_per_byte"].get<double>(), loss / std::log(2.0), 1e-6);
  // "ä" is one token of two bytes.
  std::string wide = story(40);
  for (size_t at = 0; (at = wide.find('a', at)) != std::string::npos; at += 2) wide.replace(at, 1, "ä");
  write_file(folder_ / "wide.txt", wide);
  done("--data wide.txt");
  EXPECT_LT(metrics().back()["bits_per_byte"].get<double>(),
            0.97 * metrics().back()["val_loss"].get<double>() / std::log(2.0));
  // The same character in Latin-1 is one token of one byte, which is not UTF-8.
  for (size_t at = 0; (at = wide.find("ä", at)) != std::string::npos; ++at) wide.replace(at, 2, "\xe4");
  write_file(folder_ / "latin.txt", wide);
  const Outcome outcome = done("--data latin.txt");
  EXPECT_NE(outcome.out.find("notice: " + std::to_string(std::count(wide.begin(), wide.end(), '\xe4')) +
                             " byte sequences of the text are not valid UTF-8, the first in latin.txt at byte "),
            std::string::npos)
      << outcome.out;
  EXPECT_NEAR(metrics().back()["bits_per_byte"].get<double>(),
              metrics().back()["val_loss"].get<double>() / std::log(2.0), 1e-6);
}

// Each token of this text is one byte or a separator.
TEST_F(TrainGpt, ASeparatorOfDocumentsCountsAsOneByte) {
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "{\"text\": \"7\"}\n";
  write_file(folder_ / "lines.jsonl", lines);
  done("--data lines.jsonl --tokenizer '" GODWIT_SHELL_SOURCE_DIR "/tests/data/golden/bpe/qwen2.json'");
  ASSERT_FALSE(metrics().empty());
  EXPECT_NEAR(metrics().back()["bits_per_byte"].get<double>(),
              metrics().back()["val_loss"].get<double>() / std::log(2.0), 1e-6);
}

TEST_F(TrainGpt, ANonFiniteValidationLossIsAnError) {
  for (const std::string tokens : {"0", "20"}) {
    const Outcome outcome =
        train("--max-steps 1 --lr 1e38 --set schedule.warmup_fraction=0 --set generate.tokens=" + tokens);
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_THAT(outcome.err, HasSubstr("step 1: val_loss is "));
    fs::remove_all(run_dir());
  }
}

// A model of character frequencies alone has a loss of 2.8.
TEST_F(TrainGpt, LossFalls) {
  for (const std::string flags : {"--lr 1e-2", "--optimizer birder --lr 6e-3 --nodes 2 --batch 2",
                                  "--lr 1e-2 --nodes 2 --batch 2 --dtype bf16"}) {
    done("--epochs 2 --max-steps 0 " + flags);
    EXPECT_LT(metrics().back()["val_loss"].get<double>(), 1.6) << flags;
  }
}

TEST_F(TrainGpt, EvaluationsDoNotDependOnTheNumberOfWorkers) {
  std::vector<double> losses;
  for (const std::string nodes : {"1", "3"}) {
    done("--lr 0 --max-steps 1 --nodes " + nodes);
    losses.push_back(metrics().back()["val_loss"]);
  }
  EXPECT_NEAR(losses[1], losses[0], 1e-6);
}

// With two validation blocks, the first of three workers evaluates none. With five, workers evaluate one, two and two.
TEST_F(TrainGpt, ShardedParametersGiveTheSameEvaluationsSamplesAndFiles) {
  const auto files = [&](const std::string& flags) {
    done(flags + " --set data.valid=valid.txt --batch 2 --set eval_batch=1 --set evaluate_every=2 --set log_every=1 "
                 "--set ema.decay=0.9 --set bucket.mib=0.01");
    std::string all = read_file(run_dir() / "samples.txt");
    EXPECT_THAT(all, HasSubstr("step 2\n"));
    for (const json& line : metrics()) all += line.value("loss", json()).dump() + line.value("val_loss", json()).dump();
    for (const char* file : {"model/model.safetensors", "model/config.json", "ema/model.safetensors"}) {
      EXPECT_GT(fs::file_size(run_dir() / file), 0u) << file;
      all += read_file(run_dir() / file);
    }
    return all;
  };
  for (const size_t characters : {size_t{31}, size_t{80}}) {
    write_file(folder_ / "valid.txt", story(5).substr(0, characters));
    const std::string none = files("--workers-per-node 3");
    EXPECT_TRUE(files("--workers-per-node 3 --set exchange.sharding=zero3") == none) << characters;
    const std::string nodes =
        files("--nodes 2 --workers-per-node 2 --exchange hierarchical --set exchange.sharding=none");
    EXPECT_TRUE(files("--nodes 2 --workers-per-node 2 --set exchange.sharding=hybrid") == nodes) << characters;
  }
}

// With a learning rate of 0, the second run evaluates the averages that the first run saved.
TEST_F(TrainGpt, AveragesOfShardedParametersAreEvaluatedInFloat32) {
  const std::string flags = "--set data.valid=valid.txt --optimizer adamw --nodes 2 --set log_every=1 ";
  done(flags + "--set exchange.sharding=zero3 --set exchange.parameter_wire=bf16 --set ema.decay=0.5");
  const json expected = metrics().back()["val_loss"];
  fs::rename(run_dir() / "ema", folder_ / "averages");
  fs::remove_all(run_dir());
  const Outcome outcome = train("--init-weights averages --data text.txt --context 16 --batch 4 --max-steps 1 --lr 0 "
                                "--threads 1 " + flags, "--run-dir run");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(metrics().back()["val_loss"], expected);
}

// train_gpt picks hybrid sharding for 2 × 2 workers, and a resumed run keeps it.
TEST_F(TrainGpt, PicksHybridShardingOnSeveralNodesOfSeveralWorkers) {
  const std::string flags =
      "--nodes 2 --workers-per-node 2 --batch 1 --set log_every=1 --checkpoint-every 2 --set checkpoint.keep=9";
  const Outcome outcome = done(flags);
  const std::string notice = "notice: exchange.sharding=auto picks hybrid";
  EXPECT_THAT(outcome.out, HasSubstr(notice));
  EXPECT_EQ(json::parse(read_file(run_dir() / "config.json"))["exchange"]["sharding"], "hybrid");
  const json summary = json::parse(read_file(run_dir() / "summary.json"));
  EXPECT_NE(summary["phases"].dump().find("hybrid/reduce_scatter"), std::string::npos) << summary["phases"];
  const std::string steps = results(metrics()), weights = read_file(run_dir() / "model/model.safetensors");
  fs::remove_all(run_dir() / "checkpoints/step-4");
  const Outcome more = train("", "--resume run");
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_THAT(more.out, Not(HasSubstr(notice)));
  EXPECT_EQ(results(metrics()), steps);
  EXPECT_EQ(read_file(run_dir() / "model/model.safetensors"), weights);
  const Outcome birder = done(flags + " --optimizer birder");
  EXPECT_THAT(birder.out, HasSubstr(notice));
}

// The same command continues with fewer or more nodes, although the choice for a new run would differ.
TEST_F(TrainGpt, AResumedRunKeepsItsAutomaticSharding) {
  for (const auto& [before, after, kept] :
       {std::tuple{"--nodes 2 --workers-per-node 2 --batch 1", "--nodes 1 --workers-per-node 2 --batch 1", "hybrid"},
        {"--nodes 1 --workers-per-node 2 --batch 2", "--nodes 2 --workers-per-node 2 --batch 1", "none"}}) {
    done(before + " --max-steps 2 --resume auto"s);
    const Outcome more = train(after + " --max-steps 3 --resume auto"s);
    ASSERT_EQ(more.exit_code, 0) << more.err;
    EXPECT_THAT(more.out,
                HasSubstr("notice: exchange.sharding=auto keeps "s + kept + ", the sharding of the saved run\n"));
    EXPECT_EQ(json::parse(read_file(run_dir() / "config.json"))["exchange"]["sharding"], kept);
  }
  const Outcome other = train("--max-steps 4 --resume auto --set exchange.sharding=zero2");
  EXPECT_THAT(other.err, HasSubstr("resume with its optimizer.name, exchange.name and exchange.sharding"));
}

// Fine-tunes a folder of transformers to a folder that transformers reads (bench/peers/finetune_roundtrip.py). The text
// is a cycle of 11 characters, which the model learns.
TEST_F(TrainGpt, FineTunesAFolderWithHybridShardingAndLoco) {
  const std::string cycle = "abcdefghi \n", golden = GODWIT_SOURCE_DIR "/tests/models/golden/llama3";
  fs::copy(golden, folder_ / "start");
  json characters = json::array();  // by id, ascending
  for (const char c : "\n abcdefghi"s) characters.push_back(std::string(1, c));
  write_file(folder_ / "start/characters.json", characters.dump());
  std::string text;
  for (int i = 0; i < 200; ++i) text += cycle;
  write_file(folder_ / "cycle.txt", text);
  const Outcome outcome = train(
      "--init-weights start --data cycle.txt --context 16 --batch 2 --nodes 2 --workers-per-node 2 --exchange loco "
      "--set exchange.sharding=hybrid --lr 3e-2 --epochs 100 --max-steps 200 --check-replicas 50 --threads 1",
      "--run-dir run");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json run = json::parse(read_file(run_dir() / "config.json"))["exchange"];
  EXPECT_EQ(run["name"], "loco");
  EXPECT_EQ(run["sharding"], "hybrid");
  const std::string phases = json::parse(read_file(run_dir() / "summary.json"))["phases"].dump();
  for (const char* phase : {"parameters/all_gather", "hybrid/reduce_scatter", "loco/"})
    EXPECT_THAT(phases, HasSubstr(phase));

  const auto before = load_safetensors(golden + "/model.safetensors");
  const auto after = load_safetensors(run_dir() / "model/model.safetensors");
  EXPECT_EQ(after.size(), before.size());
  for (const auto& [name, values] : before) {
    ASSERT_TRUE(after.contains(name)) << name;
    EXPECT_EQ(after.at(name).shape(), values.shape()) << name;
    EXPECT_EQ(after.at(name).dtype(), values.dtype()) << name;
    EXPECT_FALSE(same_bits(after.at(name), values)) << name << " has not changed";
  }
  const json in = json::parse(read_file(golden + "/config.json"));
  const json out = json::parse(read_file(run_dir() / "model/config.json"));
  const std::set<std::string> not_written{"dtype", "pad_token_id", "pretraining_tp", "transformers_version",
                                          "use_cache"};
  for (const auto& [key, value] : in.items())
    if (!not_written.contains(key)) {
      EXPECT_EQ(out.value(key, json("missing")), value) << key;
    }
  EXPECT_EQ(json::parse(read_file(run_dir() / "model/characters.json")), characters);

  const Outcome generated =
      train("--init-weights run/model --generate abc --temperature 0 --set generate.tokens=12", "");
  EXPECT_EQ(generated.err, "");
  EXPECT_EQ(generated.out, "abcdefghi \nabcd\n");
}

TEST_F(TrainGpt, EvaluationsWithinAnEpochChangeNoStep) {
  done("--max-steps 6 --set log_every=1");
  const std::string weights = read_file(run_dir() / "model/model.safetensors");
  const std::vector<json> whole = metrics();
  done("--max-steps 6 --set log_every=1 --set evaluate_every=2");
  EXPECT_EQ(metrics().size(), whole.size() + 2);
  EXPECT_EQ(read_file(run_dir() / "model/model.safetensors"), weights);
}

TEST_F(TrainGpt, ResumesWithTheSameBits) {
  const std::string flags =
      "--max-steps 8 --set evaluate_every=2 --set log_every=1 --checkpoint-every 4 --set model.dropout=0.1";
  done(flags + " --set checkpoint.keep=9");
  const std::string weights = read_file(run_dir() / "model/model.safetensors");
  const std::string whole = results(metrics());
  std::string samples = read_file(run_dir() / "samples.txt");
  const fs::path saved = run_dir() / "checkpoints/step-8", model = run_dir() / "model";
  for (const char* file : {"config.json", "characters.json"})
    EXPECT_EQ(read_file(saved / file), read_file(model / file)) << "a checkpoint is a HuggingFace folder";
  const auto of_checkpoint = load_safetensors(saved / "model.safetensors");
  for (const auto& [name, values] : load_safetensors(model / "model.safetensors"))
    EXPECT_TRUE(same_bits(of_checkpoint.at(name), values)) << name;
  fs::remove_all(run_dir() / "checkpoints/step-8");
  samples.insert(samples.find('\n') + 1, "a\n\n--------\n\nPage 300\n");  // the separator may be part of a sample
  write_file(run_dir() / "samples.txt", samples);
  const Outcome outcome = train("", "--resume run");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(results(metrics()), whole);
  EXPECT_EQ(read_file(run_dir() / "samples.txt"), samples);
  EXPECT_EQ(read_file(run_dir() / "model/model.safetensors"), weights);
}

// The characters of a changed text would have other ids.
TEST_F(TrainGpt, AResumedRunKeepsItsCharacters) {
  done("--max-steps 4");
  const std::string characters = read_file(run_dir() / "model/characters.json");
  const fs::path text = folder_ / "text.txt";
  std::string changed = read_file(text);
  ASSERT_EQ(changed.find('~'), changed.npos);
  std::replace(changed.begin(), changed.end(), changed.front(), changed.back());
  write_file(text, changed);
  const Outcome resumed = train("--max-steps 5", "--resume run");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(read_file(run_dir() / "model/characters.json"), characters);
}

// Emulates a run that was killed between the checkpoint and the evaluation of its best step.
TEST_F(TrainGpt, KeepsTheBestCheckpointIfTheResumedRunEvaluatesIt) {
  done("--lr 3 --set clip.norm=0 --set schedule=constant --max-steps 8 --checkpoint-every 2 --set evaluate_every=2 "
       "--set checkpoint.best=val_loss --set checkpoint.keep=9");
  std::map<double, int64_t> step_of;  // by loss
  for (const json& line : metrics())
    if (line.contains("val_loss")) step_of[line["val_loss"]] = line["step"];
  const int64_t best = step_of.begin()->second;
  ASSERT_LT(best, 8);
  const auto checkpoint = [&](int64_t step) { return "step-" + std::to_string(step); };
  for (int64_t later = best + 2; later <= 8; later += 2)
    ASSERT_GT(fs::remove_all(run_dir() / "checkpoints" / checkpoint(later)), 0u);
  const Outcome resumed = train("--set checkpoint.keep=1", "--resume run");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  std::set<std::string> kept;
  for (const auto& entry : fs::directory_iterator(run_dir() / "checkpoints"))
    kept.insert(entry.path().filename().string());
  EXPECT_EQ(kept, (std::set{checkpoint(best), checkpoint(8)})) << resumed.out;
}

TEST_F(TrainGpt, KeepsTheCheckpointWithTheFewestBitsPerByte) {
  const Outcome outcome = done("--lr 1e-2 --max-steps 9 --set evaluate_every=2 --set checkpoint.best=bits_per_byte "
                               "--set checkpoint.keep=1");
  EXPECT_THAT(outcome.out, HasSubstr("; the best bits_per_byte so far"));
  int64_t best = 0;
  double fewest = 1e9;
  for (const json& line : metrics())
    if (const double bits = line.value("bits_per_byte", 1e9); bits < fewest) best = line["step"], fewest = bits;
  std::set<std::string> kept;
  for (const auto& entry : fs::directory_iterator(run_dir() / "checkpoints"))
    kept.insert(entry.path().filename().string());
  EXPECT_EQ(kept, (std::set{"step-"s + std::to_string(best), "step-9"s})) << outcome.out;
}

TEST_F(TrainGpt, ContinuesFromASavedFolder) {
  done("--max-steps 20 --lr 1e-2 --set data.valid=valid.txt");
  const double before = metrics().back()["val_loss"].get<double>();
  fs::rename(run_dir(), folder_ / "first");
  const Outcome outcome = train(
      "--data text.txt --init-weights first/model --max-steps 1 --lr 0 --batch 4 --context 16 "
      "--set data.valid=valid.txt --threads 1",
      "--run-dir run");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(metrics().back()["val_loss"].get<double>(), before);
  const Outcome again = train("--config run/config.json", "--run-dir again");
  EXPECT_EQ(again.exit_code, 0) << again.err;
  const Outcome run_folder = train("--init-weights first --generate anna", "");
  EXPECT_THAT(run_folder.err, HasSubstr("first: is the folder of a run; its model is in first/model"));
  fs::remove(folder_ / "first/model/characters.json");
  const Outcome unknown = train("--data text.txt --init-weights first/model --context 16", "--run-dir none");
  EXPECT_THAT(unknown.err,
              HasSubstr("the tokenizer of the initial weights is not known; name it with --tokenizer PATH"));
}

// The checkpoint has the sizes and the tokenizer of the initial weights.
TEST_F(TrainGpt, ResumesWithoutTheInitialWeights) {
  save_model("first");
  const Outcome begun = train(
      "--data text.txt --init-weights first --context 16 --batch 4 --threads 1 --max-steps 4 --checkpoint-every 2 "
      "--set log_every=1 --set model.dropout=0.1", "--run-dir run");
  ASSERT_EQ(begun.exit_code, 0) << begun.err;
  const std::string whole = results(metrics()), weights = read_file(run_dir() / "model/model.safetensors");
  const std::string config = read_file(run_dir() / "model/config.json");
  fs::remove_all(run_dir() / "checkpoints/step-4");
  fs::remove_all(folder_ / "first");
  const Outcome outcome = train("", "--resume run");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, Not(HasSubstr("changed since")));
  EXPECT_EQ(results(metrics()), whole);
  EXPECT_EQ(read_file(run_dir() / "model/model.safetensors"), weights);
  EXPECT_EQ(read_file(run_dir() / "model/config.json"), config);
}

// The sizes of the initial weights replace the sizes in a run's config.json.
TEST_F(TrainGpt, RepeatsARunFromItsWeights) {
  done("--max-steps 20 --lr 1e-2");
  const double before = metrics().back()["val_loss"].get<double>();
  fs::rename(run_dir(), folder_ / "first");
  const Outcome outcome =
      train("--config first/config.json --init-weights first/model --max-steps 1 --lr 0", "--run-dir run");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(metrics().back()["val_loss"].get<double>(), before);
  EXPECT_THAT(outcome.out,
              HasSubstr("notice: first/config.json: not used: model.n_embd, model.n_head, model.n_layer, because "
                        "the command line chooses initial weights"));
  write_file(folder_ / "llama.json", R"({"model": {"name": "llama_nano", "n_kv_head": 2, "dropout": 0.5}})");
  const Outcome printed = train("--config llama.json --init-weights first/model --print-config", "");
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  const json model = json::parse(printed.out)["model"];
  EXPECT_EQ(model["name"], "auto");
  EXPECT_EQ(model["dropout"], 0.5);
}

// If the command line chooses another model than the file, the sizes of the file are not used.
TEST_F(TrainGpt, AnotherModelReplacesTheSizesOfTheFile) {
  write_file(folder_ / "nano.json", R"({"model": {"name": "gpt2_nano", "n_layer": 2, "n_embd": 128, "dropout": 0.5}})");
  const auto model_of = [&](const std::string& flags) {
    const Outcome printed = train("--config nano.json --print-config" + flags, "");
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    return std::pair(json::parse(printed.out)["model"], printed.err);
  };
  const auto [other, notice] = model_of(" --model gpt2_micro");
  EXPECT_EQ(other["n_layer"], 6);
  EXPECT_EQ(other["n_embd"], 384);
  EXPECT_EQ(other["dropout"], 0);
  EXPECT_THAT(notice, HasSubstr("not used: model.dropout, model.n_embd, model.n_layer, because the command line "
                                "chooses model gpt2_micro"));
  EXPECT_EQ(model_of(" --model gpt2_nano").first["n_layer"], 2);
}

// A folder's tokenizer.json may have parts that train_gpt does not read. The saved folder has them, too.
TEST_F(TrainGpt, SavesTheWholeTokenizerOfTheInitialWeights) {
  save_model("first", "--max-steps 1 --tokenizer '" GODWIT_SHELL_SOURCE_DIR "/tests/data/golden/bpe/llama3.json'");
  json tokenizer = json::parse(read_file(folder_ / "first/tokenizer.json"));
  tokenizer["truncation"] = {{"max_length", 9}};
  write_file(folder_ / "first/tokenizer.json", tokenizer.dump());
  const Outcome outcome = train("--init-weights first --data text.txt --context 16 --max-steps 1", "--run-dir run");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(read_file(run_dir() / "model/tokenizer.json"), tokenizer.dump());
}

// tools/predict takes the sizes of a GPT-2 from the folder of its run.
TEST_F(TrainGpt, PredictTakesARun) {
  for (const char* model : {"", "--model llama_nano ", "--model mixtral_nano "}) {
    done(std::string(model) + "--max-steps 3");
    const std::string command = "cd '" + folder_.string() + "' && '" GODWIT_SHELL_SOURCE_DIR
                                "/tools/predict' --run run --nodes 2 --methods dense,birder --json >out 2>err";
    EXPECT_EQ(std::system(command.c_str()), 0) << model << read_file(folder_ / "err");
    const json predicted = json::parse(read_file(folder_ / "out"), nullptr, false);
    EXPECT_EQ(predicted["parameters"], json::parse(read_file(run_dir() / "summary.json"))["parameters"]) << model;
    fs::remove_all(run_dir());
  }
}

TEST_F(TrainGpt, RefusesInvalidInput) {
  expect_refused("--data none.txt", {"none.txt: no such file"});
  expect_refused("--set checkpoint.best=test_loss", {"'test_loss'; use one of val_loss, perplexity, bits_per_byte\n"});
  expect_refused("--context 100000", {"training: the text has ", "; use more text or a shorter context\n"});
  expect_refused("--batch 200 --nodes 4", {"training: the text has ",
                                           "; use more text, a smaller --batch, fewer workers or a shorter context\n"});
  expect_refused("--set model.n_embd=15", {"n_embd 15 is not a multiple of n_head 2"});
  expect_refused("--model gpt2_nan", {"gpt2_nano"});
  expect_refused("--model llama_nano --set model.n_kv_head=3",
                 {"num_attention_heads 2 is not a multiple of num_key_value_heads 3"});
  expect_refused("--set model.n_kv_head=2", {"model.n_kv_head is a size of LLaMA, Mistral, Qwen2 and Mixtral"});
  expect_refused("--model llama_nano --set model.n_experts=2", {"model.n_experts is a size of Mixtral"});
  expect_refused("--set data.valid=valid.txt --set data.valid_fraction=0.2",
                 {"--set data.valid_fraction: data.valid is the validation text; leave one of them out"});
  expect_refused("--set trace_steps=5", {"--set trace_steps: no trace is written; also give --trace, or leave it out"});
  expect_refused("--generate Text", {"--generate requires --init-weights DIR"});
  expect_refused("--generate ''",
                 {"--generate: the prompt is empty; give the beginning of a text, for example --generate "});
  expect_refused("--tokenizer none", {"none: no such file"});
  expect_refused("--set model.dropout=1", {"model.dropout"});
  expect_refused("--set model.recompute=3", {"model.recompute is 3, but the network has 2 layers"});
  expect_refused("--set model.recompute=some", {"expects true, false or a number of layers, got 'some'"});
  save_model("first");
  const std::string sizes = "--data text.txt --threads 1 --max-steps 1 ";
  const auto refused = [&](const std::string& flags, const std::vector<std::string>& words) {
    const Outcome outcome = train(flags, flags.find("--generate") == std::string::npos ? "--run-dir run" : "");
    EXPECT_NE(outcome.exit_code, 0) << flags;
    for (const std::string& word : words) EXPECT_THAT(outcome.err, HasSubstr(word));
    EXPECT_FALSE(fs::exists(run_dir())) << flags << " left a run directory";
  };
  refused(sizes + "--context 16 --model llama3_8b --set model.n_layer=1000",
          {"model llama3_8b: ", " parameters with their gradients take ", " for 1 worker, and this machine has "});
  refused(sizes + "--init-weights first --context 17", {"blocks of 17 tokens, but first has 16 positions"});
  refused(sizes + "--init-weights first --context 16 --set model.n_layer=3", {"determine model.n_layer"});
  write_file(folder_ / "other.txt", story(40) + "ÄÖÜ");
  refused("--data other.txt --threads 1 --context 16 --init-weights first", {"Ä"});
  refused("--data other.txt --threads 1 --context 16 --init-weights first --tokenizer characters",
          {"the tokenizer has", "tokens, but first has", "use the tokenizer of the weights"});
  refused("--init-weights first --generate 'anna lives in oslo'",
          {"the prompt has 18 tokens, the model has 16 positions"});
  refused("--init-weights first --generate 'ANNA'", {"the character 'A' at byte 0"});
  refused("--init-weights first --generate anna --tokenizer characters",
          {"--tokenizer characters needs a text; leave it out or name a characters.json"});
  refused("--init-weights nowhere --generate anna", {"nowhere"});
  refused("--init-weights first/model.safetensors --generate anna",
          {"first/model.safetensors: is a file; --init-weights expects the folder of a model"});
  refused(sizes + "--init-weights first --context 16 --model gpt2_nano",
          {"--model: the initial weights determine the network; leave it out"});
  json config = json::parse(read_file(folder_ / "first/config.json"));
  config["model_type"] = "llama";
  write_file(folder_ / "first/config.json", config.dump());
  refused("--init-weights first --generate anna",
          {"model.safetensors: does not fit a llama of 32 layers (num_hidden_layers)", "model.embed_tokens.weight"});
  config["model_type"] = "bert";
  write_file(folder_ / "first/config.json", config.dump());
  const std::string other = "model_type must be gpt2, llama, mistral, qwen2 or mixtral, got \"bert\"";
  refused("--init-weights first --generate anna", {other});
  refused("--init-weights first --context 16 --data none.txt", {other});
  fs::remove(folder_ / "first/characters.json");
  refused("--init-weights first --generate anna", {other});
  write_file(folder_ / "first/tokenizer.model", "sentencepiece");
  config["model_type"] = "gpt2";
  write_file(folder_ / "first/config.json", config.dump());
  refused("--init-weights first --generate anna", {"is a SentencePiece model; expected a byte-level BPE model"});
}

// The error comes before the run directory exists, so the same command works with a corrected file.
TEST_F(TrainGpt, RefusesATokenBeyondTheVocabularyBeforeTheFirstStep) {
  std::string ids;  // of 2 bytes
  for (int i = 0; i < 4000; ++i) ids += "\1\0"s;
  const std::string flags = "--tokenizer '" GODWIT_SOURCE_DIR "/tests/data/golden/bpe/qwen2.json' --data train.bin";
  ids.replace(4000, 2, "\xf3\1");  // 499
  write_file(folder_ / "train.bin", ids);
  expect_refused(flags, {"train.bin: token 2000 is 499, expected ids below 450, the size of the vocabulary"});
  ids.replace(4000, 2, "\1\0"s);
  write_file(folder_ / "train.bin", ids);
  done(flags);
}

// The texts have different characters, so the models have different sizes.
TEST_F(TrainGpt, NamesRanksWithAnotherText) {
  if (const std::string reason = no_mpirun(); !reason.empty()) GTEST_SKIP() << reason;
  write_file(folder_ / "other.txt", story(40) + "?!");
  const std::string program = "'" GODWIT_SHELL_BINARY_DIR "/train_gpt' " + base_ + " ";
  const MpiOutcome outcome = mpirun(2, program + ": -np 1 " + program + "--data other.txt", scratch_);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("ranks disagree on the tokenizer: rank 2 differs from the rest; "
                                     "use the same files on all ranks\n"));
}

// Four experts and few tokens, so that replicas have experts without tokens.
TEST_F(TrainGpt, TrainsLlamaAndMixtral) {
  for (const std::string name : {"llama", "mixtral"}) {
    const std::string flags = "--model " + name +
                              "_nano --set model.n_inner=32 --optimizer birder --nodes 2 --batch 1 " +
                              "--context 8 --check-replicas 1 --set log_every=1 --max-steps 3 --set model.dropout=0.1";
    done(flags);
    const std::string steps = results(metrics()), weights = read_file(run_dir() / "model/model.safetensors");
    const json config = json::parse(read_file(run_dir() / "model/config.json"));
    EXPECT_EQ(config["model_type"], name);
    fs::remove_all(folder_ / name);
    fs::rename(run_dir() / "model", folder_ / name);
    fs::remove_all(run_dir());
    done(flags);
    EXPECT_EQ(results(metrics()), steps) << name;
    EXPECT_EQ(read_file(run_dir() / "model/model.safetensors"), weights) << name;
    fs::remove_all(run_dir());
    const Outcome more =
        train("--init-weights " + name + " --data text.txt --context 8 --batch 4 --max-steps 1 " + "--threads 1",
              "--run-dir run");
    EXPECT_EQ(more.exit_code, 0) << more.err;
    const Outcome text =
        train("--init-weights " + name + " --generate an --set generate.tokens=20 --temperature 0", "");
    EXPECT_EQ(text.exit_code, 0) << text.err;
    EXPECT_TRUE(text.out.starts_with("an")) << text.out;
    fs::remove_all(run_dir());
  }
}

TEST_F(TrainGpt, HelpListsTheOptions) {
  const Outcome help = train("--help", "");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* text : {"./train_gpt --optimizer birder", "--model", "gpt2_xl", "--generate", "--top-p",
                           "evaluate_every", "blocks per worker"})
    EXPECT_THAT(help.out, HasSubstr(text)) << text;
  const json printed = json::parse(train("--model gpt2_medium --print-config", "").out);
  EXPECT_EQ(printed["model"]["n_embd"], 1024);
  EXPECT_EQ(printed["clip"]["norm"], 1);
}

}  // namespace train_gpt_test
}  // namespace godwit
