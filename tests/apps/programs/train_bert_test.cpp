// train_bert, run from the command line: its tasks, reproducibility, and rejection of invalid input.
#include <cmath>
#include <set>

#include "data/text/squad_metrics.h"
#include "data/text/vocabulary.h"
#include "models/pretrained.h"
#include "tests/apps/programs/program_test.h"
#include "tests/apps/small_data.h"

namespace godwit {
namespace train_bert_test {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr, ::testing::Not;

class TrainBert : public ProgramTest {
 protected:
  TrainBert()
      : ProgramTest("train_bert", "--run-dir run --model bert_tiny --length 32 --batch 8 --max-steps 4 --threads 1") {}
  void SetUp() override {
    write_file(folder_ / "text.txt", story(40));
    write_file(folder_ / "squad" / "train-v1.1.json", squad(64).dump());
    write_file(folder_ / "squad" / "dev-v1.1.json", squad(12).dump());
    write_file(folder_ / "tsv" / "train.tsv", reviews(160));
    write_file(folder_ / "tsv" / "dev.tsv", reviews(31));
  }
};

const std::string kPretrain = "--task pretrain --data text.txt --set data.hold_out=8 ";
const std::string kSquad = "--task squad --data squad --set data.max_question=10 --set data.doc_stride=8 ";
const std::string kClassify = "--task classify --data tsv ";

TEST_F(TrainBert, EveryTaskWritesARunDirectoryAndIsReproducible) {
  const std::string flags =
      "--optimizer birder --nodes 2 --workers-per-node 2 --batch 2 --set log_every=1 --check-replicas 1 "
      "--accumulation 2";
  for (const std::string& task : {kPretrain, kSquad, kClassify}) {
    const Outcome outcome = done(task + flags);
    EXPECT_NE(outcome.out.find("trained on this text"), std::string::npos) << outcome.out;
    ASSERT_EQ(metrics().size(), 5u) << "four steps and an evaluation";
    for (const char* file : {"config.json", "vocab.txt", "model/config.json", "model/model.safetensors",
                             "model/vocab.txt", "model/tokenizer_config.json"})
      EXPECT_TRUE(fs::exists(run_dir() / file)) << task << file;
    EXPECT_EQ(read_file(run_dir() / "vocab.txt"), read_file(run_dir() / "model/vocab.txt"));
    SCOPED_TRACE(task);
    expect_config_repeats_the_run({"model/model.safetensors"});
  }
}

TEST_F(TrainBert, EvaluationsReportTheMetricsOfTheirTask) {
  for (const auto& [task, keys] :
       {std::pair{kPretrain, std::vector<std::string>{"test_loss", "mlm_loss", "mlm_accuracy", "nsp_accuracy"}},
        {kSquad, {"em", "f1"}},
        {kClassify, {"test_loss", "test_accuracy"}}}) {
    fs::remove_all(run_dir());
    std::string list;
    for (const std::string& key : keys) list += (list.empty() ? "" : ", ") + key;
    expect_refused(task + "--set checkpoint.best=test_f1", {"have no figure 'test_f1'; use one of " + list + "\n"});
    done(task + "--max-steps 1");
    const json last = metrics().back();
    EXPECT_EQ(last.size(), 2 + keys.size()) << last;
    for (const std::string& key : keys) EXPECT_TRUE(last.contains(key)) << key;
    // After one step, the words of the vocabulary, and the two classes, still have nearly equal probabilities.
    const std::string vocab = read_file(run_dir() / "vocab.txt");
    const double words = static_cast<double>(std::count(vocab.begin(), vocab.end(), '\n'));
    for (const auto& [of_task, key, classes] :
         {std::tuple{kPretrain, "mlm_loss", words}, {kClassify, "test_loss", 2.0}})
      if (task == of_task) {
        EXPECT_NEAR(last[key].get<double>(), std::log(classes), 0.3) << task;
      }
    done(task + "--max-steps 1 --set validation=4");
    const json validated = metrics().back();
    EXPECT_EQ(validated.size(), last.size());
    for (const std::string& key : keys)
      EXPECT_TRUE(validated.contains(key.starts_with("test_") ? "validation" + key.substr(4) : key)) << key;
    EXPECT_NE(validated, last);
  }
}

TEST_F(TrainBert, ValidationQuestionsHaveOtherParagraphsThanTrainingQuestions) {
  json train_set = squad(64);
  for (json& paragraph : train_set["data"][0]["paragraphs"]) {
    json second = paragraph["qas"][0];
    second["id"] = second["id"].get<std::string>() + "b";
    paragraph["qas"].push_back(second);
  }
  write_file(folder_ / "squad" / "train-v1.1.json", train_set.dump());
  const Outcome outcome = done(kSquad + "--max-steps 1 --set validation=4");
  EXPECT_THAT(outcome.out, HasSubstr("train-v1.1.json: 96 questions in "));
  EXPECT_THAT(outcome.out, HasSubstr("train-v1.1.json: 32 questions in "));
  const json answers = json::parse(read_file(run_dir() / "predictions.json"));
  EXPECT_EQ(answers.size(), 32u);
  for (const auto& [id, answer] : answers.items())
    EXPECT_TRUE(answers.contains(id.back() == 'b' ? id.substr(0, id.size() - 1) : id + "b")) << id;
  fs::remove_all(run_dir());
  write_file(folder_ / "squad" / "train-v1.1.json", squad(3).dump());
  expect_refused(kSquad + "--set validation=4",
                 {"validation is 4, but there are 3 paragraphs in the training file; expected N from 2"});
}

TEST_F(TrainBert, PretrainingLearnsMaskedWords) {
  done(kPretrain + "--lr 2e-3 --set model.dropout=0 --nodes 2 --epochs 12 --max-steps 0 --check-replicas 10");
  EXPECT_GT(metrics().back()["mlm_accuracy"].get<double>(), 0.3) << "chance with 22 words is about 0.05";
}

// The official scores of the written predictions must equal the logged scores.
TEST_F(TrainBert, SquadPredictionsHaveTheReportedScores) {
  done(kSquad + "--lr 1e-3 --epochs 10 --max-steps 0 --set log_every=20");
  const json last = metrics().back();
  EXPECT_GT(last["f1"].get<double>(), 80);
  const data::Squad questions = data::read_squad((folder_ / "squad/dev-v1.1.json").string());
  const data::SquadScore score =
      data::squad_score(questions, data::read_answers((run_dir() / "predictions.json").string()));
  EXPECT_NEAR(last["em"].get<double>(), score.exact_match, 1e-6);
  EXPECT_NEAR(last["f1"].get<double>(), score.f1, 1e-6);
  EXPECT_EQ(score.unanswered, 0);
  const json nbest = json::parse(read_file(run_dir() / "nbest_predictions.json"));
  ASSERT_EQ(nbest.size(), 12u);
  EXPECT_EQ(nbest["q3"][0]["text"], json::parse(read_file(run_dir() / "predictions.json"))["q3"]);

  // Only rank 0 has the scores.
  const Outcome best = done(kSquad + "--nodes 2 --batch 4 --max-steps 1 --set checkpoint.best=f1");
  EXPECT_THAT(best.out, HasSubstr("; the best f1 so far"));

  done(kSquad + "--set data.test_limit=5 --max-steps 1");
  EXPECT_EQ(json::parse(read_file(run_dir() / "predictions.json")).size(), 5u);
}

// One worker writes the evaluation's files, after the evaluation.
TEST_F(TrainBert, UnwritablePredictionsDoNotLoseWeights) {
  fs::create_directories(run_dir() / "predictions.json.tmp");
  const Outcome outcome = train(kSquad + "--nodes 2 --epochs 3 --max-steps 0");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("predictions.json: cannot be written"));
  EXPECT_THAT(outcome.err, HasSubstr("; the weights after step "));
  EXPECT_TRUE(fs::exists(run_dir() / "model/model.safetensors"));
}

// Windows are distributed over the ranks, and every answer combines windows of all ranks.
TEST_F(TrainBert, ScoresDoNotDependOnTheNumberOfWorkers) {
  std::vector<std::string> predictions;
  for (const std::string nodes : {"1", "3"}) {
    done(kSquad + "--lr 0 --max-steps 1 --nodes " + nodes);
    predictions.push_back(read_file(run_dir() / "predictions.json"));
  }
  EXPECT_EQ(predictions[1], predictions[0]);
}

TEST_F(TrainBert, ClassifiesAndContinuesFromItsOwnFolder) {
  done(kClassify + "--optimizer birder --lr 1e-3 --nodes 2 --epochs 8 --max-steps 0 --check-replicas 10");
  const json trained = metrics().back();
  EXPECT_GT(trained["test_accuracy"].get<double>(), 0.9) << "chance is 0.5";
  const json model = json::parse(read_file(run_dir() / "model/config.json"));
  EXPECT_EQ(model["model_type"], "bert");
  EXPECT_EQ(model["num_hidden_layers"], 2);
  fs::rename(run_dir(), folder_ / "first");
  // With a learning rate of 0 the weights stay, so the evaluation must be equal.
  const Outcome again =
      done(kClassify + "--model auto --init-weights first/model --lr 0 --max-steps 1 --nodes 2");
  EXPECT_EQ(metrics().back()["test_loss"], trained["test_loss"]);
  EXPECT_THAT(again.out, HasSubstr("first/model/vocab.txt"));
  EXPECT_THAT(again.out, HasSubstr("weights"));
  EXPECT_EQ(read_file(run_dir() / "model/vocab.txt"), read_file(folder_ / "first/model/vocab.txt"));
  // Another head is initialized, and the run reports this at the start.
  const Outcome squad = done(kSquad + "--model auto --init-weights first/model --max-steps 1");
  EXPECT_THAT(squad.out, HasSubstr("qa_outputs"));
}

// The checkpoint has the sizes, the vocabulary and the classes.
TEST_F(TrainBert, ResumesWithoutTheInitialWeights) {
  done(kPretrain + "--max-steps 1");
  fs::rename(run_dir(), folder_ / "first");
  done(kClassify + "--model auto --init-weights first/model --checkpoint-every 2 --set log_every=1");
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

// Sentences with "good" and the first label, and sentences with "bad" and the second label.
std::string judged(const std::string& good, const std::string& bad) {
  std::string text = "sentence\tlabel\n";
  for (int i = 0; i < 8; ++i) text += "it was good\t" + good + "\nbad it was\t" + bad + "\n";
  return text;
}

// A hand-made classifier in HuggingFace format that is always right: class 0 for "good", class 1 for "bad". Its first
// token attends equally to all words; only those two words have nonzero embeddings.
void write_right_classifier(const fs::path& folder, const std::vector<std::string>& labels) {
  const data::Vocabulary vocabulary({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"});
  BertConfig config = bert_config("bert_tiny");
  config.vocab_size = vocabulary.size();
  config.hidden_size = config.intermediate_size = 4;
  config.num_hidden_layers = config.num_attention_heads = 1;
  config.labels = labels;
  const BertForSequenceClassification model(config);
  for (const Parameter& p : model.parameters()) {
    p.var.value().zero();
    const auto set = [&, x = p.var.value().data<float>()](const std::string& name, int64_t at, float value) {
      if (p.name.ends_with(name)) x[at] = value;
    };
    for (int64_t i = 0; i < 4; ++i) {
      const float good = i % 2 ? -1.f : 1.f;
      set("LayerNorm.weight", i, 1);
      for (const char* identity : {"value.weight", "attention.output.dense.weight", "pooler.dense.weight"})
        set(identity, 5 * i, 1);
      set("word_embeddings.weight", 4 * 5 + i, good);
      set("word_embeddings.weight", 4 * 6 + i, -good);
      set("classifier.weight", i, good);
      set("classifier.weight", 4 + i, -good);
    }
  }
  save_pretrained(folder.string(), model);
  data::write_vocabulary((folder / "vocab.txt").string(), vocabulary);
}

const std::string kRight = "--task classify --data tsv --model auto --init-weights right --lr 0 --max-steps 1 ";

// Labels are mapped to the classes of the head, in any order.
TEST_F(TrainBert, AHeadKeepsItsClasses) {
  write_right_classifier(folder_ / "right", {"positive", "negative"});
  for (const auto& [good, bad] : {std::pair("positive", "negative"), {"0", "1"}}) {
    write_file(folder_ / "tsv" / "train.tsv", judged(good, bad));
    write_file(folder_ / "tsv" / "dev.tsv", judged(good, bad));
    const Outcome outcome = done(kRight);
    EXPECT_EQ(metrics().back()["test_accuracy"], 1.0) << good;
    const json model = json::parse(read_file(run_dir() / "model/config.json"));
    EXPECT_EQ(model["id2label"], json({{"0", "positive"}, {"1", "negative"}}));
    EXPECT_EQ(model["label2id"], json({{"positive", 0}, {"negative", 1}}));
    EXPECT_THAT(outcome.out, HasSubstr("2 of right/config.json: positive, negative"));
  }
  // A file may lack some classes of a head.
  write_file(folder_ / "tsv" / "dev.tsv", "sentence\tlabel\nbad\t1\n");
  done(kRight);
  EXPECT_EQ(metrics().back()["test_accuracy"], 1.0);
}

TEST_F(TrainBert, AHeadRefusesOtherClasses) {
  write_right_classifier(folder_ / "right", {"positive", "negative"});
  const auto refused = [&](const std::string& train, const std::string& dev, const std::vector<std::string>& words) {
    write_file(folder_ / "tsv" / "train.tsv", train);
    write_file(folder_ / "tsv" / "dev.tsv", dev);
    expect_refused(kRight, words);
  };
  const std::string good = judged("positive", "negative");
  refused(judged("positive", "neutral"), good,
          {"train.tsv:3: label \"neutral\" is none of the 2 classes of right/config.json (\"positive\", \"negative\")",
           "classifier.weight"});
  refused(judged("Positive", "good"), good, {"labels \"Positive\", \"good\" are none of", "did you mean 'positive'?"});
  refused(good, judged("positive", "negatives"), {"dev.tsv:3: ", "\"negatives\"", "did you mean 'negative'?"});
  refused(judged("0", "2"), good, {"train.tsv:3: label \"2\"", "(0 \"positive\", 1 \"negative\")"});
  refused(judged("0", "1"), good, {"dev.tsv:2: labels \"positive\", \"negative\"", "numbers"});
  refused(judged("5.000", "3.800"), good, {"train.tsv:2: ", "regression"});
  // The meaning of these default names is unknown.
  write_right_classifier(folder_ / "right", {"LABEL_0", "LABEL_1"});
  refused(good, good, {"\"positive\"", "\"LABEL_0\"", "right/config.json", "default names", "id2label"});
  write_file(folder_ / "tsv" / "train.tsv", judged("0", "1"));
  write_file(folder_ / "tsv" / "dev.tsv", judged("0", "1"));
  done(kRight);
  EXPECT_EQ(metrics().back()["test_accuracy"], 1.0);
}

TEST_F(TrainBert, RefusesHeadsThatAreNotClassifiers) {
  for (const char* file : {"train.tsv", "dev.tsv"}) write_file(folder_ / "tsv" / file, judged("0", "1"));
  write_right_classifier(folder_ / "right", {"positive", "negative"});
  const fs::path file = folder_ / "right/config.json";
  const json config = json::parse(read_file(file));
  const auto changed = [&](const char* field, const json& value) {
    json other = config;
    other[field] = value;
    write_file(file, other.dump());
  };
  changed("problem_type", "regression");
  expect_refused(kRight, {"right/config.json: problem_type", "\"regression\""});
  done(kSquad + "--model auto --init-weights right --max-steps 1");
  fs::remove_all(run_dir());
  changed("label2id", {{"positive", 1}, {"negative", 0}});
  expect_refused(kRight, {"right/config.json: label2id: \"negative\" is 0, but id2label has 1"});
  json three = config;
  three.erase("label2id");
  three["id2label"]["2"] = "neutral";
  write_file(file, three.dump());
  expect_refused(kRight, {"right: classifier.weight has 2 outputs, but right/config.json names 3 labels"});
  write_right_classifier(folder_ / "one", {"score"});
  expect_refused(kClassify + "--model auto --init-weights one", {"one/config.json", "one label", "regression"});
}

// As saved by current versions of transformers.
TEST_F(TrainBert, ReadsATokenizerJson) {
  for (const char* file : {"train.tsv", "dev.tsv"}) write_file(folder_ / "tsv" / file, judged("0", "1"));
  write_right_classifier(folder_ / "right", {"positive", "negative"});
  const fs::path golden = GODWIT_SOURCE_DIR "/tests/data/golden/bert_tokenizer", right = folder_ / "right";
  json tokenizer = json::parse(read_file(golden / "tokenizer.json"));
  json& words = tokenizer["model"]["vocab"];
  for (json::iterator at = words.begin(); at != words.end();) at = *at > 6 ? words.erase(at) : std::next(at);
  write_file(right / "tokenizer.json", tokenizer.dump());
  fs::rename(right / "vocab.txt", folder_ / "vocab.txt");
  fs::copy(golden / "tokenizer_config.json", right / "tokenizer_config.json");
  const Outcome outcome = done(kRight);
  EXPECT_EQ(metrics().back()["test_accuracy"], 1.0);
  EXPECT_THAT(outcome.out, HasSubstr("7 tokens, right/tokenizer.json; letters unchanged"));
  EXPECT_EQ(read_file(run_dir() / "model/vocab.txt"), read_file(folder_ / "vocab.txt"));
  const std::string saved = read_file(run_dir() / "model/tokenizer_config.json");
  EXPECT_THAT(saved, HasSubstr("\"model_max_length\": 1000000000000000019884624838656,"));
  EXPECT_THAT(saved, HasSubstr("\"do_lower_case\": false"));
  // A tokenizer given with --vocab needs no weights; the maximum length is then that of the model.
  EXPECT_NE(done(kClassify + "--vocab right/tokenizer.json --max-steps 1").out.find("letters unchanged"),
            std::string::npos);
  EXPECT_EQ(json::parse(read_file(run_dir() / "model/tokenizer_config.json"))["model_max_length"], 512);
  // A resumed run applies the letter case to the given file and to the checkpoint's file.
  done(kRight + "--vocab right/tokenizer.json --set data.letter_case=lower --max-steps 1");
  const Outcome resumed = train("--max-steps 2", "--resume run");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(resumed.out.find("letters unchanged"), std::string::npos);
  fs::remove_all(run_dir());
  // If both files exist they must agree; --vocab selects one.
  fs::copy(folder_ / "vocab.txt", right / "vocab.txt");
  done(kRight);
  fs::remove_all(run_dir());
  write_file(right / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nbad\ngood\n");
  expect_refused(kRight,
                 {"right/vocab.txt: token 5 is \"bad\", but in right/tokenizer.json it is \"good\"", "--vocab"});
  write_file(right / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\n");
  expect_refused(kRight, {"right/vocab.txt: has 6 tokens, but right/tokenizer.json has 7"});
  done(kRight + "--vocab vocab.txt");
  fs::remove_all(run_dir());
  tokenizer["normalizer"]["type"] = "NFC";
  write_file(right / "tokenizer.json", tokenizer.dump());
  expect_refused(kRight, {"right/tokenizer.json: normalizer.type: is \"NFC\""});
}

// config.json of the initial weights has the sizes, the number of heads and the activation.
TEST_F(TrainBert, TheInitialWeightsDetermineTheNetwork) {
  done(kPretrain + "--max-steps 1");
  fs::rename(run_dir(), folder_ / "first");
  expect_refused(kPretrain + "--init-weights first/model",
                 {"--model: config.json of the initial weights determines the network; use --model auto"});
  const Outcome outcome = train("--config first/config.json --init-weights first/model --max-steps 1", "--run-dir run");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("notice: first/config.json: not used: model.name, because the command line chooses "
                        "initial weights\n"));
  EXPECT_EQ(json::parse(read_file(run_dir() / "config.json"))["model"]["name"], "auto");
  fs::remove(folder_ / "first/model/config.json");
  done(kPretrain + "--init-weights first/model --max-steps 1");
  fs::remove_all(run_dir());
  expect_refused(kPretrain + "--init-weights first/model --model bert_mini", {"hidden_size"});
}

TEST_F(TrainBert, AnotherOrderOfTheVocabularyIsANotice) {
  done(kPretrain + "--max-steps 1");
  fs::rename(run_dir(), folder_ / "first");
  const std::string words = read_file(folder_ / "first/vocab.txt"),
                    flags = kPretrain + "--model auto --init-weights first/model --max-steps 1 --vocab ";
  const size_t first = words.find('\n') + 1;
  write_file(folder_ / "moved.txt", words.substr(first) + words.substr(0, first));
  const std::string notice =
      "notice: the initial weights in first/model were trained with another tokenizer; this run "
      "uses moved.txt\n";
  EXPECT_NE(done(flags + "moved.txt").out.find(notice), std::string::npos);
  EXPECT_EQ(done(flags + "first/vocab.txt").out.find("notice"), std::string::npos);
}

TEST_F(TrainBert, TextThatIsNotUtf8IsANotice) {
  write_file(folder_ / "text.txt", "na\xefve\n\n" + story(40));
  const std::string notice =
      "notice: 1 byte sequences of the text are not valid UTF-8, the first in text.txt at byte 2; "
      "they are left out; convert the text to UTF-8\n";
  EXPECT_NE(done(kPretrain + "--max-steps 1").out.find(notice), std::string::npos);
  write_file(folder_ / "tsv" / "dev.tsv", "sentence\tlabel\nna\xefve\t1\n");
  EXPECT_NE(done(kClassify + "--max-steps 1").out.find("UTF-8, the first in tsv/dev.tsv at byte 17"),
            std::string::npos);
}

// Without a head in the folder, the classes come from the data, and the decoder is not checked.
TEST_F(TrainBert, WithoutAHeadTheClassesComeFromTheData) {
  for (const char* file : {"train.tsv", "dev.tsv"}) write_file(folder_ / "tsv" / file, judged("good", "bad") + "\n");
  done(kPretrain + "--max-steps 1");
  fs::rename(run_dir(), folder_ / "first");
  json config = json::parse(read_file(folder_ / "first/model/config.json"));
  config["tie_word_embeddings"] = false;
  write_file(folder_ / "first/model/config.json", config.dump());
  const std::string go_on = "--model auto --init-weights first/model --max-steps 1";
  const Outcome outcome = done(kClassify + go_on);
  EXPECT_THAT(outcome.out, HasSubstr("2 of train.tsv: bad, good"));
  EXPECT_EQ(json::parse(read_file(run_dir() / "model/config.json"))["id2label"], json({{"0", "bad"}, {"1", "good"}}));
  done(kSquad + go_on);
  fs::remove_all(run_dir());
  expect_refused(kPretrain + go_on, {"tie_word_embeddings", "false"});
}

TEST_F(TrainBert, TrainsInBfloat16AndSavesAveragedWeights) {
  done(kPretrain + "--dtype bf16 --nodes 2 --set exchange.wire=bf16 --set ema.decay=0.9 --check-replicas 1");
  EXPECT_TRUE(std::isfinite(metrics().back()["test_loss"].get<double>()));
  EXPECT_TRUE(fs::exists(run_dir() / "ema/model.safetensors"));
  EXPECT_TRUE(fs::exists(run_dir() / "ema/vocab.txt"));
}

// Dropout uses the same random numbers in every run.
TEST_F(TrainBert, DropoutChangesTheLossReproducibly) {
  std::vector<double> losses;
  for (const std::string dropout : {"0.5", "0.5", "0", "0,0.5"}) {
    done(kClassify + "--max-steps 1 --nodes 2 --set model.dropout=" + dropout);
    losses.push_back(metrics().front()["loss"]);
  }
  EXPECT_EQ(losses[1], losses[0]);
  EXPECT_NE(losses[2], losses[0]);
  EXPECT_NE(losses[3], losses[2]);
  EXPECT_NE(losses[3], losses[0]);
}

// All sentences are equal and the learning rate is 0, so losses differ only by dropout.
TEST_F(TrainBert, DropoutDiffersBetweenMicroBatchesAndRanks) {
  done(kClassify + "--max-steps 1");
  fs::rename(run_dir(), folder_ / "first");  // its head has a second class, which the files below lack
  std::string text = "sentence\tlabel\n";
  for (int i = 0; i < 16; ++i) text += "anna in oslo was good and fine\t1\n";
  write_file(folder_ / "tsv" / "train.tsv", text);
  write_file(folder_ / "tsv" / "dev.tsv", text);
  const auto losses = [&](const std::string& flags) {
    done(kClassify +
         "--model auto --init-weights first/model --lr 0 --epochs 2 --set log_every=1 "
         "--set model.dropout=0.3 " +
         flags);
    std::vector<double> found;
    for (const json& line : metrics())
      if (line.contains("loss")) found.push_back(line["loss"]);
    return found;
  };
  const std::vector<double> one = losses(""), summed = losses("--accumulation 2"), ranks = losses("--nodes 2");
  ASSERT_EQ(one.size(), 4u);
  EXPECT_EQ(std::set<double>(one.begin(), one.end()).size(), 4u) << "dropout must differ between epochs";
  ASSERT_EQ(summed.size(), 2u);
  for (size_t step = 0; step < 2; ++step) {  // micro-batches are numbered across steps
    EXPECT_NEAR(summed[step], (one[2 * step] + one[2 * step + 1]) / 2, 1e-6);
    EXPECT_GT(std::abs(ranks[step] - one[step]), 1e-5) << "the second rank must have its own random numbers";
  }
}

TEST_F(TrainBert, RefusesInvalidInput) {
  expect_refused("--task squadd", {"squadd", "did you mean 'squad'"});
  expect_refused("--task squad", {"task squad needs --data", "dev-v1.1.json"});
  for (const std::string task : {"squad", "classify"}) {
    const Outcome printed = train("--print-config --task " + task, "");
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    EXPECT_EQ(json::parse(printed.out)["task"], task);
  }
  expect_refused(kPretrain + "--model bert_midi", {"bert_midi", "bert_mini"});
  expect_refused(kPretrain + "--set data.doc_stride=8", {"task pretrain does not read data.doc_stride, only squad"});
  expect_refused(kClassify + "--set data.masked=0.3", {"task classify does not read data.masked, only pretrain"});
  expect_refused(kPretrain + "--set model.dropout=1", {"model.dropout", "[0, 1)"});
  expect_refused(kPretrain + "--set model.dropout=0.1,0.1,0.1", {"model.dropout has 3 values"});
  expect_refused("--task pretrain --data nowhere.txt", {"nowhere.txt"});
  expect_refused("--task squad --data tsv", {"tsv", "has no train-v1.1.json"});
  expect_refused("--task squad --data squad/train-v1.1.json", {"data.test"});
  write_file(folder_ / "blank.txt", " \n\n \n");
  expect_refused("--task pretrain --data blank.txt", {"blank.txt"});
  expect_refused(kPretrain + "--set data.test=text.txt",
                 {"--set data.hold_out: data.test is evaluated; leave one of them out"});
  for (const std::string option : {"data.vocab_size", "data.alphabet"})
    expect_refused(kPretrain + "--vocab vocab.txt --set " + option + "=100",
                   {option + ": the run uses the vocabulary of --vocab; leave it out"});
  expect_refused(kClassify + "--set data.test=tsv/dev.tsv --set validation=4",
                 {"with validation, held-out training samples are evaluated; leave data.test or validation out"});
  done("--task classify --data tsv/train.tsv --set validation=4 --max-steps 1");
  // A file has values that the user did not give, so it may be combined with the command line.
  fs::rename(run_dir(), folder_ / "first");
  const Outcome again = train("--config first/config.json --vocab first/vocab.txt --max-steps 1", "--run-dir run");
  EXPECT_EQ(again.exit_code, 0) << again.err;
  fs::remove_all(run_dir());
  expect_refused(kPretrain + "--set data.hold_out=50", {"text.txt: has 40 documents", "data.hold_out", "data.test"});
  expect_refused(kPretrain + "--init-weights nowhere", {"nowhere: no such file or folder"});
  expect_refused(kPretrain + "--batch 100000", {"100000"});
  expect_refused(kPretrain + "--length 8 --set data.vocab_size=9", {"9 tokens has no room", "data.alphabet"});
}

TEST_F(TrainBert, RefusesInconsistentFiles) {
  json bad = squad(2);
  bad["data"][0]["paragraphs"][1]["qas"][0]["answers"][0]["answer_start"] = "nine";
  write_file(folder_ / "squad" / "dev-v1.1.json", bad.dump());
  expect_refused(kSquad, {"dev-v1.1.json", "data[0].paragraphs[1].qas[0].answers[0].answer_start"});
  bad = squad(2);
  bad["data"][0]["paragraphs"][1]["qas"][0]["answers"] = json::array();
  write_file(folder_ / "squad" / "dev-v1.1.json", bad.dump());
  expect_refused(kSquad, {"dev-v1.1.json: 1 of 2 questions have no answer", "\"q1\"", "SQuAD 1.1"});
  std::swap(bad["data"][0]["paragraphs"][0], bad["data"][0]["paragraphs"][1]);
  bad["data"][0]["paragraphs"][1]["qas"][0]["is_impossible"] = true;
  write_file(folder_ / "squad" / "dev-v1.1.json", squad(2).dump());
  const std::string answered = read_file(folder_ / "squad" / "train-v1.1.json");
  write_file(folder_ / "squad" / "train-v1.1.json", bad.dump());
  expect_refused(kSquad, {"train-v1.1.json: 2 of 2 questions have no answer", "\"q1\""});
  write_file(folder_ / "squad" / "train-v1.1.json", answered);
  bad = squad(2);
  for (json& paragraph : bad["data"][0]["paragraphs"]) paragraph["qas"][0]["answers"][0]["answer_start"] = 1;
  const std::string train = read_file(folder_ / "squad" / "train-v1.1.json");
  write_file(folder_ / "squad" / "dev-v1.1.json", squad(2).dump());
  write_file(folder_ / "squad" / "train-v1.1.json", bad.dump());
  expect_refused(kSquad, {"train-v1.1.json", "none of 2 questions is usable"});
  write_file(folder_ / "squad" / "train-v1.1.json", train);
  write_file(folder_ / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nanna\nanna\n");
  expect_refused(kClassify + "--vocab vocab.txt", {"vocab.txt", "anna"});
  write_file(folder_ / "tsv" / "dev.tsv", "sentence\tlabel\nwhat a day\t7\n");
  expect_refused(kClassify, {"dev.tsv", "7"});

  done(kPretrain + "--max-steps 1");
  fs::rename(run_dir(), folder_ / "first");
  const std::string go_on = kPretrain + "--model auto --init-weights first/model ";
  const std::string words = read_file(folder_ / "first/model/vocab.txt");
  write_file(folder_ / "first/model/vocab.txt", words + "[unused]\n");
  expect_refused(go_on, {"vocab.txt", "vocab_size of first/model/config.json"});
  write_file(folder_ / "first/model/vocab.txt", words.substr(0, words.rfind('\n', words.size() - 2) + 1));
  expect_refused(go_on, {"vocab.txt", "vocab_size of first/model/config.json"});
  write_file(folder_ / "first/model/vocab.txt", words);
  write_file(folder_ / "first/model/added_tokens.json", R"({"[PAD]": 0, "<tool>": 9999})");
  expect_refused(go_on, {"first/model/added_tokens.json: \"<tool>\" is an added token, expected only [PAD] [UNK] "});
  fs::remove(folder_ / "first/model/added_tokens.json");
  expect_refused(go_on + "--length 600", {"data.length is 600", "max_position_embeddings", "512"});
  const std::string weights = read_file(folder_ / "first/model/model.safetensors");
  write_file(folder_ / "first/model/model.safetensors", weights.substr(0, weights.size() / 2));
  expect_refused(go_on, {"model.safetensors"});
  fs::remove(folder_ / "first/model/config.json");
  expect_refused(go_on, {"first/model/config.json: is missing", "--model"});
  write_file(folder_ / "first/model/tokenizer_config.json", "{\"do_lower_case\": 3}");
  expect_refused(go_on, {"tokenizer_config.json", "do_lower_case"});
  fs::remove(folder_ / "first/model/vocab.txt");
  fs::remove(folder_ / "first/model/tokenizer_config.json");
  expect_refused(go_on, {"first/model: has no vocab.txt or tokenizer.json", "--vocab"});
}

TEST_F(TrainBert, AnswersThatDoNotMatchTheirOffsetAreCounted) {
  json odd = squad(20);
  odd["data"][0]["paragraphs"][4]["qas"][0]["answers"][0]["answer_start"] = 1;
  write_file(folder_ / "squad" / "train-v1.1.json", odd.dump());
  const Outcome outcome = done(kSquad + "--max-steps 1");
  EXPECT_THAT(outcome.out, HasSubstr("1 answer not at the position given in the file"));
  EXPECT_THAT(outcome.out, HasSubstr("1 skipped"));
}

}  // namespace train_bert_test
}  // namespace godwit
