#include "data/text/classification.h"

#include <atomic>

#include "engine/check.h"
#include "engine/hash.h"

namespace godwit::data {

constexpr int64_t kClassificationTokens = 2;  // [CLS] and [SEP]

ClassificationDataset::ClassificationDataset(const TsvDataset& text, const WordPiece& tokenizer,
                                             const ClassificationOptions& options)
    : length_(options.length),
      classes_(std::ssize(text.classes)),
      pad_(tokenizer.vocabulary().pad()),
      cls_(tokenizer.vocabulary().cls()),
      sep_(tokenizer.vocabulary().sep()),
      sentences_(text.sentences.size()),
      labels_(text.labels) {
  check(length_ > kClassificationTokens, "classification: a length of ", length_, " tokens, expected more than ",
        kClassificationTokens);
  std::atomic<int64_t> cut = 0;
  const auto work = [&](int64_t i) {
    std::vector<int32_t>& ids = sentences_[static_cast<size_t>(i)];
    std::vector<Token> tokens = tokenizer.encode(text.sentences[static_cast<size_t>(i)]);
    if (std::ssize(tokens) > length_ - kClassificationTokens)
      tokens.resize(static_cast<size_t>(length_ - kClassificationTokens)), ++cut;
    ids.reserve(tokens.size());
    for (const Token& token : tokens) ids.push_back(token.id);
  };
  parallel_for_each(size(), options.threads, work, options.progress);
  cut_ = cut;
  Hash hash;
  hash.add(static_cast<uint64_t>(classes_));
  for (const auto& ids : sentences_) {
    hash.add(ids.size());
    for (const int32_t id : ids) hash.add(static_cast<uint64_t>(id));
  }
  for (const int32_t label : labels_) hash.add(static_cast<uint64_t>(label));
  hash_ = hash.value();
}

TextDataset::Extent ClassificationDataset::measure(int64_t sample, int64_t) const {
  return {std::ssize(sentences_[static_cast<size_t>(sample)]) + kClassificationTokens, 0};
}

TextSample ClassificationDataset::read(int64_t sample, int64_t) const {
  const std::vector<int32_t>& ids = sentences_[static_cast<size_t>(sample)];
  TextSample text;
  text.ids.reserve(ids.size() + kClassificationTokens);
  text.ids.push_back(cls_);
  text.ids.insert(text.ids.end(), ids.begin(), ids.end());
  text.ids.push_back(sep_);
  text.first = std::ssize(text.ids);
  text.label = labels_[static_cast<size_t>(sample)];
  return text;
}

}  // namespace godwit::data
