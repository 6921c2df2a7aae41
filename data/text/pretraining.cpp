#include "data/text/pretraining.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/check.h"
#include "engine/hash.h"

namespace godwit::data {
namespace {

constexpr int64_t kPretrainingTokens = 3;  // [CLS] and two [SEP]
constexpr int64_t kBlock = 256;  // sentences per work item

void check_options(const PretrainingOptions& options) {
  check(options.length >= kPretrainingTokens + 2, "pre-training: a length of ", options.length,
        " tokens, expected at least ", kPretrainingTokens + 2);
  check(options.masked > 0 && options.masked < 1, "pre-training: masks ", options.masked,
        " of the tokens, expected a number in (0, 1)");
  check(options.max_predictions >= 0, "pre-training: max_predictions ", options.max_predictions,
        ", expected 0 or more");
  check(options.short_samples >= 0 && options.short_samples <= 1, "pre-training: short_samples ", options.short_samples,
        ", expected a number in [0, 1]");
}

}  // namespace

PretrainingDataset::PretrainingDataset(const Corpus& corpus, const WordPiece& tokenizer, PretrainingOptions options)
    : options_(std::move(options)),
      room_(options_.length - kPretrainingTokens),
      pad_(tokenizer.vocabulary().pad()),
      cls_(tokenizer.vocabulary().cls()),
      sep_(tokenizer.vocabulary().sep()),
      mask_(tokenizer.vocabulary().mask()),
      vocabulary_(static_cast<int32_t>(tokenizer.vocabulary().size())) {
  check_options(options_);
  tokenize(corpus, tokenizer);
  check(!tokens_.empty(), "pre-training: the corpus has no tokens");
  check(sentences_.size() <= std::numeric_limits<uint32_t>::max(), "pre-training: ", sentences_.size() - 1,
        " sentences are too many");
  cut_runs();
  Hash hash;
  for (const double value : {static_cast<double>(options_.length), static_cast<double>(options_.max_predictions),
                             options_.masked * 1e9, options_.short_samples * 1e9, static_cast<double>(vocabulary_)})
    hash.add(static_cast<uint64_t>(value));
  hash.add(options_.seed);
  for (const auto& places : {sentences_, documents_})
    for (const int64_t place : places) hash.add(static_cast<uint64_t>(place));
  for (const int32_t id : tokens_) hash.add(static_cast<uint64_t>(id));
  hash_ = hash.value();
}

void PretrainingDataset::tokenize(const Corpus& corpus, const WordPiece& tokenizer) {
  struct Block {
    std::vector<int32_t> ids;
    std::vector<int64_t> lengths;  // tokens per sentence
  };
  std::vector<Block> blocks(static_cast<size_t>((corpus.sentences() + kBlock - 1) / kBlock));
  const auto work = [&](int64_t b) {
    Block& block = blocks[static_cast<size_t>(b)];
    std::vector<Token> tokens;
    for (int64_t s = b * kBlock; s < std::min((b + 1) * kBlock, corpus.sentences()); ++s) {
      tokens.clear();
      tokenizer.encode(corpus.sentence(s), tokens);
      for (const Token& token : tokens) block.ids.push_back(token.id);
      block.lengths.push_back(std::ssize(tokens));
    }
  };
  parallel_for_each(std::ssize(blocks), options_.threads, work, options_.progress);

  int64_t document = 0, sentence = 0;
  const auto end_documents = [&] {  // documents without tokens are dropped
    for (; document < corpus.documents() && corpus.first_sentence(document + 1) == sentence; ++document)
      if (documents_.back() < std::ssize(sentences_) - 1) documents_.push_back(std::ssize(sentences_) - 1);
  };
  for (Block& block : blocks) {
    tokens_.insert(tokens_.end(), block.ids.begin(), block.ids.end());
    for (int64_t left : block.lengths) {
      for (int64_t piece; left > 0; left -= piece) {
        piece = std::min(left, room_ / 2);
        sentences_.push_back(sentences_.back() + piece);
      }
      ++sentence;
      end_documents();
    }
    block = {};
  }
}

void PretrainingDataset::cut_runs() {
  for (size_t d = 0; d + 1 < documents_.size(); ++d) {
    int64_t first = documents_[d];
    for (int64_t s = first; s < documents_[d + 1]; ++s) {
      if (sentences(first, s + 1).size() < room_ && s + 1 < documents_[d + 1]) continue;
      runs_.push_back({first, s + 1 - first, static_cast<int32_t>(d)});
      first = s + 1;
    }
  }
}

PretrainingDataset::Range PretrainingDataset::sentences(int64_t first, int64_t last) const {
  return {sentences_[static_cast<size_t>(first)], sentences_[static_cast<size_t>(last)]};
}

PretrainingDataset::Plan PretrainingDataset::plan(int64_t sample, int64_t epoch) const {
  const Run& run = runs_[static_cast<size_t>(sample)];
  RandomStream random(options_.seed, Purpose::text, static_cast<uint32_t>(epoch), static_cast<uint32_t>(sample));
  int64_t target = room_;
  if (random.uniform() < options_.short_samples) target = 2 + random.below(static_cast<uint32_t>(room_ - 1));
  int64_t count = 1;
  while (count < run.count && sentences(run.first, run.first + count).size() < target) ++count;

  const int64_t of_a = count == 1 ? 1 : 1 + random.below(static_cast<uint32_t>(count - 1));
  Plan plan{sentences(run.first, run.first + of_a), {}, 0};
  if (count == 1 || random.uniform() < 0.5) {
    plan.label = 1;
    plan.b = random_text(run.document, target - plan.a.size(), random);
  } else {
    plan.b = sentences(run.first + of_a, run.first + count);
  }
  for (int64_t over = plan.a.size() + plan.b.size() - room_; over > 0; --over) {
    Range& longer = plan.a.size() > plan.b.size() ? plan.a : plan.b;
    if (random.next() & 1) ++longer.begin;
    else --longer.end;
  }
  return plan;
}

// Consecutive sentences from a random position in another document, until they have `size` tokens or it ends.
PretrainingDataset::Range PretrainingDataset::random_text(int32_t document, int64_t size, RandomStream& random) const {
  const int64_t begin = documents_[static_cast<size_t>(document)], end = documents_[static_cast<size_t>(document) + 1];
  const int64_t all = documents_.back(), others = all - (end - begin);
  int64_t first = random.below(static_cast<uint32_t>(others > 0 ? others : all));
  if (others > 0 && first >= begin) first += end - begin;
  const int64_t stop = *std::ranges::upper_bound(documents_, first);
  int64_t last = first + 1;
  while (last < stop && sentences(first, last).size() < size) ++last;
  return sentences(first, last);
}

int64_t PretrainingDataset::predictions(int64_t tokens) const {
  const auto share = [&](int64_t of) {
    return std::max<int64_t>(1, std::lround(static_cast<double>(of) * options_.masked));
  };
  const int64_t most = options_.max_predictions > 0 ? options_.max_predictions : share(options_.length);
  return std::min({share(tokens), most, tokens - kPretrainingTokens});
}

TextDataset::Extent PretrainingDataset::measure(int64_t sample, int64_t epoch) const {
  const Plan made = plan(sample, epoch);
  const int64_t tokens = made.a.size() + made.b.size() + kPretrainingTokens;
  return {tokens, predictions(tokens)};
}

TextSample PretrainingDataset::read(int64_t sample, int64_t epoch) const {
  const Plan made = plan(sample, epoch);
  TextSample text;
  const auto add = [&](const Range& range) {
    text.ids.insert(text.ids.end(), tokens_.begin() + range.begin, tokens_.begin() + range.end);
    text.ids.push_back(sep_);
  };
  text.ids.reserve(static_cast<size_t>(made.a.size() + made.b.size() + kPretrainingTokens));
  text.ids.push_back(cls_);
  add(made.a);
  text.first = std::ssize(text.ids);
  add(made.b);
  text.label = made.label;
  mask(text, sample, epoch);
  return text;
}

void PretrainingDataset::mask(TextSample& text, int64_t sample, int64_t epoch) const {
  std::vector<int32_t> places(text.ids.size());
  std::iota(places.begin(), places.end(), 0);
  places.pop_back();                              // the last [SEP]
  places.erase(places.begin() + text.first - 1);  // the first
  places.erase(places.begin());                   // [CLS]
  RandomStream random(options_.seed, Purpose::mask, static_cast<uint32_t>(epoch), static_cast<uint32_t>(sample));
  const auto count = static_cast<size_t>(predictions(std::ssize(text.ids)));
  for (size_t i = 0; i < count; ++i)
    std::swap(places[i], places[i + random.below(static_cast<uint32_t>(places.size() - i))]);
  places.resize(count);
  std::ranges::sort(places);
  for (const int32_t place : places) {
    int32_t& id = text.ids[static_cast<size_t>(place)];
    text.masked_labels.push_back(id);
    const float u = random.uniform();
    if (u < 0.8f) id = mask_;
    else if (u < 0.9f) id = static_cast<int32_t>(random.below(static_cast<uint32_t>(vocabulary_)));
  }
  text.masked_positions = std::move(places);
}

}  // namespace godwit::data
