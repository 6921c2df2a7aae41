// train_lm, run from the command line: reproducibility, data parallelism, evaluations, and rejection of invalid input.
#include <cmath>

#include "tests/apps/programs/program_test.h"
#include "tests/apps/small_data.h"

namespace godwit {
namespace train_lm_test {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr, ::testing::Not;

class TrainLm : public ProgramTest {
 protected:
  TrainLm()
      : ProgramTest("train_lm",
                    "--run-dir run --set model.embedding=16 --set model.hidden=24 --length 7 --batch 4 --max-steps 4 "
                    "--threads 1") {}
  void SetUp() override {
    write_file(folder_ / "text" / "train.txt", story(60));
    write_file(folder_ / "text" / "valid.txt", story(9));
    write_file(folder_ / "text" / "test.txt", story(11));
    write_file(folder_ / "one.txt", story(60));
  }
};

const std::string kFolder = "--data text ";

TEST_F(TrainLm, RunsAreReproducible) {
  const std::string flags =
      "--optimizer birder --nodes 2 --workers-per-node 2 --batch 2 --set log_every=1 --check-replicas 1 "
      "--accumulation 2 --set model.input_dropout=0.2 --set model.weight_dropout=0.3";
  for (const std::string& data : {kFolder, std::string("--data one.txt --set data.hold_out=6 ")}) {
    const Outcome outcome = done(data + flags);
    EXPECT_NE(outcome.out.find("of the training text"), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("4 of 112 tokens"), std::string::npos) << outcome.out;
    ASSERT_EQ(metrics().size(), 5u) << "four steps and an evaluation";
    ASSERT_TRUE(fs::exists(run_dir() / "vocab.txt"));
    SCOPED_TRACE(data);
    expect_config_repeats_the_run({"weights.safetensors"});
  }
}

TEST_F(TrainLm, TextThatIsNotUtf8IsANotice) {
  write_file(folder_ / "one.txt", "na\xefve\n\n" + story(60));
  const auto noticed = [&](const std::string& flags, const std::string& place) {
    const Outcome outcome = done(flags + " --max-steps 1");
    EXPECT_THAT(outcome.out, HasSubstr("notice: 1 byte sequences of the text are not valid UTF-8, the first in " +
                                       place + "; convert the text to UTF-8\n"));
  };
  noticed("--data one.txt --set data.hold_out=6", "one.txt at byte 2; words keep them");
  noticed("--data one.txt --set data.valid=text/valid.txt --set data.words=basic",
          "one.txt at byte 2; they are left out");
  write_file(folder_ / "text" / "valid.txt", "\xef\n" + story(9));
  noticed(kFolder, "text/valid.txt at byte 0; words keep them");
}

TEST_F(TrainLm, TheBibleMayBeEveryPartOfTheText) {
  const std::string bible = "/usr/lib/bible.data";
  if (!fs::exists(bible)) GTEST_SKIP() << "the package bible-kjv-text is not installed";
  const std::string out = done("--data " + bible + " --set data.words=basic --set data.valid=" + bible +
                               " --set data.vocab_size=100 --max-steps 1")
                              .out;
  EXPECT_THAT(out, Not(HasSubstr("UTF-8")));
  EXPECT_THAT(read_file(run_dir() / "vocab.txt"), HasSubstr("\nlord\n"));
}

// Each line, also an empty one, ends with <eos>.
TEST_F(TrainLm, TrainingAndValidationReadBlankLinesAlike) {
  write_file(folder_ / "one.txt", "\n" + story(30) + "\n\n" + story(30));
  const std::string out = done("--data one.txt --set data.valid=one.txt --max-steps 1").out;
  const auto tokens_after = [&](const std::string& label) {
    const size_t at = out.find("one.txt: ", out.find(label));
    return out.substr(at, out.find(" tokens", at) - at);
  };
  EXPECT_EQ(tokens_after("\ntraining "), tokens_after("\nvalidation ")) << out;
}

TEST_F(TrainLm, EvaluationsReportLossAndPerplexity) {
  const std::string best = "--set checkpoint.best=test_perplexiti", refusal = "'test_perplexiti'; use one of ";
  expect_refused(kFolder + best, {refusal + "test_loss, val_loss, perplexity, test_perplexity\n"});
  done(kFolder);
  const json last = metrics().back();
  EXPECT_EQ(last.size(), 6u) << last;
  EXPECT_NEAR(last["perplexity"].get<double>(), std::exp(last["val_loss"].get<double>()), 1e-6);
  EXPECT_NEAR(last["test_perplexity"].get<double>(), std::exp(last["test_loss"].get<double>()), 1e-6);
  fs::remove(folder_ / "text" / "test.txt");
  done(kFolder);
  EXPECT_EQ(metrics().back().size(), 4u) << metrics().back();
  fs::remove_all(run_dir());
  expect_refused(kFolder + best, {refusal + "val_loss, perplexity\n"});
}

// A model of word frequencies alone has a loss of 2.7.
TEST_F(TrainLm, LossFalls) {
  for (const std::string flags : {"--lr 1e-2",
                                  "--optimizer birder --lr 6e-3 --set optimizer.beta=0.9 --nodes 2 --batch 2",
                                  "--optimizer sgdm --lr 1 --nodes 2 --batch 2 --dtype bf16"}) {
    done(kFolder + "--epochs 8 --max-steps 0 --set model.tied=true --set model.hidden=32 " + flags);
    EXPECT_LT(metrics().back()["val_loss"].get<double>(), 1.4) << flags;
  }
}

// Every token is predicted once, by whichever worker.
TEST_F(TrainLm, EvaluationsDoNotDependOnTheNumberOfWorkers) {
  std::vector<json> last;
  for (const std::string nodes : {"1", "3"}) {
    done(kFolder + "--lr 0 --max-steps 1 --set eval_batch=5 --nodes " + nodes);
    last.push_back(metrics().back());
  }
  for (const char* key : {"val_loss", "test_loss"})
    EXPECT_NEAR(last[1][key].get<double>(), last[0][key].get<double>(), 1e-6) << key;
}

// Two workers with two streams each have the streams of one worker with four. Without dropout, only the order of the
// sums differs.
TEST_F(TrainLm, WorkersShareTheStreams) {
  std::vector<std::vector<json>> runs;
  for (const std::string flags : {"--batch 4", "--batch 2 --nodes 2"}) {
    done(kFolder + "--optimizer sgd --lr 0.5 --max-steps 12 --set log_every=1 " + flags);
    runs.push_back(metrics());
  }
  for (size_t step = 0; step < runs[0].size(); ++step) {
    const char* key = runs[0][step].contains("loss") ? "loss" : "val_loss";
    EXPECT_NEAR(runs[1][step][key].get<double>(), runs[0][step][key].get<double>(), 1e-4) << "line " << step;
  }
}

TEST_F(TrainLm, ContinuesFromSavedWeights) {
  done(kFolder + "--max-steps 20 --lr 1e-2");
  const double before = metrics().back()["val_loss"].get<double>();
  fs::rename(run_dir(), folder_ / "first");
  done(kFolder + "--max-steps 1 --lr 0 --init-weights first/weights.safetensors --vocab first/vocab.txt");
  EXPECT_EQ(metrics().back()["val_loss"].get<double>(), before);
  EXPECT_FALSE(fs::exists(run_dir() / "vocab.txt")) << "only a vocabulary that the run built is saved";
}

// The words of the saved run have other ids than those of a text with other frequencies.
TEST_F(TrainLm, WeightsAndResumedRunsKeepTheirVocabulary) {
  done(kFolder + "--max-steps 20 --lr 1e-2");
  const double before = metrics().back()["val_loss"].get<double>();
  const std::string words = read_file(run_dir() / "vocab.txt");
  std::string text = story(60);
  for (size_t at = text.find("oslo") + 1; (at = text.find("oslo", at)) != text.npos;) text.replace(at, 4, "rome");
  write_file(folder_ / "text" / "train.txt", text);
  const Outcome resumed = train("--max-steps 21 --lr 0", "--resume run");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(metrics().back()["val_loss"].get<double>(), before);
  fs::rename(run_dir(), folder_ / "first");
  const std::string from = kFolder + "--max-steps 1 --lr 0 --init-weights first/weights.safetensors";
  done(from);
  EXPECT_EQ(metrics().back()["val_loss"].get<double>(), before);
  EXPECT_EQ(read_file(run_dir() / "vocab.txt"), words);
  fs::remove_all(run_dir());
  fs::remove(folder_ / "first" / "vocab.txt");
  expect_refused(from, {"first/weights.safetensors: has no vocab.txt beside it", "--vocab FILE"});
  const Outcome other = train("--max-steps 22", "--resume first");
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("the vocabulary has changed since the run was saved"));
}

TEST_F(TrainLm, AResumedRunKeepsItsStreams) {
  done(kFolder);
  const std::string words =
      "--batch is 2 (was 4): the run in run continues the streams of text of its workers; resume with --batch 4";
  const Outcome other = train("--batch 2 --max-steps 5", "--resume run");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr(words));
  const Outcome adapted = train(kFolder + "--resume auto --batch 2 --accumulation 2 --max-steps 5");
  EXPECT_EQ(adapted.exit_code, 0) << adapted.err;
  EXPECT_THAT(adapted.out, HasSubstr("notice: 1 worker: batch 4 and accumulation 1 keep 4 samples per step\n"));
  const Outcome same = train("--max-steps 6", "--resume run");
  EXPECT_EQ(same.exit_code, 0) << same.err;
}

// With another number of workers but the same number of streams, an epoch has the same steps.
TEST_F(TrainLm, ContinuesWithOtherNumbersOfWorkers) {
  done(kFolder + "--nodes 2 --max-steps 6 --set log_every=1 --checkpoint-every 2 --set checkpoint.keep=9");
  const auto steps = [&] {
    std::vector<int64_t> all;
    for (const json& line : metrics()) all.push_back(line["step"]);
    return all;
  };
  const std::vector<int64_t> whole = steps();
  int64_t last = 2;
  for (const auto& [nodes, words] :
       {std::pair{4, "4 workers instead of 2: batch 2 and accumulation 1 keep 8 samples per step"},
        {1, "1 worker instead of 4: batch 8 and accumulation 1 keep 8 samples per step"}}) {
    for (int64_t step = last + 2; step <= 6; step += 2)
      fs::remove_all(run_dir() / ("checkpoints/step-" + std::to_string(step)));
    const Outcome outcome = train("--nodes " + std::to_string(nodes), "--resume run");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr(words));
    EXPECT_THAT(outcome.out, HasSubstr("begins anew, because the workers have other data: task/lstm/c0, task/lstm/c1, "
                                       "task/lstm/h0, task/lstm/h1"));
    EXPECT_EQ(steps(), whole);
    last += 2;
  }
}

// The words of story() are fewer than data.vocab_size.
TEST_F(TrainLm, NewWordsInTheValidationTextAreUnknown) {
  done(kFolder);
  const std::string all = read_file(run_dir() / "vocab.txt");
  EXPECT_THAT(all, Not(HasSubstr("<unk>")));
  write_file(folder_ / "text" / "valid.txt", "anna lives in\nparis now .\n");
  for (const std::string flags : {"", "--set data.vocab_size=10"}) {
    const Outcome outcome = done(kFolder + "--length 2 --set eval_batch=1 " + flags);
    EXPECT_THAT(outcome.out, HasSubstr("of them outside the vocabulary"));
    const std::string words = read_file(run_dir() / "vocab.txt");
    EXPECT_THAT(words, HasSubstr("<unk>\n"));
    EXPECT_EQ(std::count(words.begin(), words.end(), '\n'),
              flags.empty() ? std::count(all.begin(), all.end(), '\n') - 1 : 10);
  }
  // A configuration with data.vocab_size may be used with a vocabulary.
  for (const char* name : {"config.json", "vocab.txt"}) write_file(folder_ / name, read_file(run_dir() / name));
  done("--config config.json --vocab vocab.txt");
}

TEST_F(TrainLm, RefusesInvalidInput) {
  expect_refused("--data none.txt", {"none.txt"});
  expect_refused(kFolder + "--length 4000", {"training: the text has", "tokens needs 4001", "lower --length"});
  expect_refused(kFolder + "--batch 200 --nodes 4", {"for each of 800 streams (4 workers × 200)"});
  expect_refused("--data one.txt --set data.hold_out=60",
                 {"one.txt: has 60 documents", "too few to hold out", "; set data.hold_out to at most 59, or name"});
  write_file(folder_ / "short.txt", "anna\nparis\n");
  expect_refused("--data short.txt", {"short.txt: has 1 document (", "of 50 twice; name the evaluation text with"});
  expect_refused(kFolder + "--set data.test=none.txt", {"none.txt"});
  expect_refused("--data one.txt --set data.test=other.txt", {"data.test other.txt requires data.valid"});
  for (const std::string& data : {kFolder, std::string("--data one.txt --set data.valid=text/valid.txt ")})
    expect_refused(
        data + "--set data.hold_out=5",
        {"--set data.hold_out: documents are held out of a text file without data.valid only; leave it out"});
  write_file(folder_ / "empty" / "train.txt", " \n\n");
  expect_refused("--data empty", {"data folder empty: has no valid.txt, ptb.valid.txt or wiki.valid.tokens"});
  write_file(folder_ / "empty" / "valid.txt", story(9));
  expect_refused("--data empty", {"train.txt: holds no words"});
  write_file(folder_ / "closed.txt", "anna\n<eos>\n");
  write_file(folder_ / "lines.txt", "anna\n\n anna \n\nanna\n\n\nanna\nparis\n");
  expect_refused("--data lines.txt --set data.hold_out=2 --vocab closed.txt",
                 {"lines.txt (validation): line 9: 'paris' is not in the vocabulary, which has no <unk>"});
  write_file(folder_ / "vocab.txt", "anna\n<unk>\n");
  expect_refused(kFolder + "--vocab vocab.txt", {"vocab.txt", "<eos>"});
  for (const auto& [flags, origin] :
       {std::pair{"--vocab vocab.txt", "--vocab"}, {"--init-weights run/weights.safetensors", "the initial weights"}})
    expect_refused(kFolder + flags + " --set data.vocab_size=10",
                   {std::string("--set data.vocab_size: the run uses the vocabulary of ") + origin + "; leave it out"});
  expect_refused(kFolder + "--model lstm_smal", {"lstm_small"});
  expect_refused(kFolder + "--set model.hidden_dropout=1", {"model.hidden_dropout"});
}

TEST_F(TrainLm, HelpListsTheOptions) {
  const Outcome help = train("--help", "");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* text : {"./train_lm --data PTB_DIR", "--model", "lstm_medium", "model.weight_dropout",
                           "data.hold_out", "streams of text per worker"})
    EXPECT_THAT(help.out, HasSubstr(text)) << text;
  const json printed = json::parse(train("--model lstm_awd --print-config", "").out);
  EXPECT_EQ(printed["model"]["hidden"], 1150);
  EXPECT_EQ(printed["model"]["tied"], true);
}

}  // namespace train_lm_test
}  // namespace godwit
