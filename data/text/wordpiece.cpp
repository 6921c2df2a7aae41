#include "data/text/wordpiece.h"

#include <limits>

#include "engine/check.h"

namespace godwit::data {
namespace {

constexpr std::string_view kContinuation = "##";

ByteTrie trie_of(const Vocabulary& vocabulary, bool continuations) {
  std::vector<std::pair<std::string_view, int32_t>> words;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view token = vocabulary.token(id);
    if (token.starts_with(kContinuation) == continuations)
      words.emplace_back(continuations ? token.substr(kContinuation.size()) : token, id);
  }
  return ByteTrie(std::move(words));
}

}  // namespace

WordPiece::WordPiece(Vocabulary vocabulary, const WordPieceOptions& options)
    : vocabulary_(std::move(vocabulary)),
      splitter_({options.lower_case, options.strip_accents, options.split_cjk}),
      max_word_(static_cast<uint32_t>(options.max_word)),
      beginnings_(trie_of(vocabulary_, false)),
      continuations_(trie_of(vocabulary_, true)) {
  check(options.max_word >= 1, "tokenizer: max_word is ", options.max_word, ", expected at least 1");
}

std::vector<Token> WordPiece::encode(std::string_view text) const {
  std::vector<Token> tokens;
  tokens.reserve(text.size() / 4 + 1);
  encode(text, tokens);
  return tokens;
}

void WordPiece::encode(std::string_view text, std::vector<Token>& tokens) const {
  check(text.size() <= std::numeric_limits<uint32_t>::max(), "tokenizer: a text of ", text.size(),
        " bytes; expected less than 4 GiB");
  for (size_t at = 0; at < text.size();) {
    const Special special = next_special(text, at);
    splitter_.each_word(text, at, special.at, [&](const Word& word) { match(word, tokens); });
    at = special.at + special.length;
    if (special.length > 0)
      tokens.push_back({special.id, static_cast<uint32_t>(special.at), static_cast<uint32_t>(at)});
  }
}

WordPiece::Special WordPiece::next_special(std::string_view text, size_t at) const {
  const int32_t ids[] = {vocabulary_.pad(), vocabulary_.unk(), vocabulary_.cls(), vocabulary_.sep(),
                         vocabulary_.mask()};
  for (at = text.find('[', at); at != text.npos; at = text.find('[', at + 1))
    for (int32_t id : ids)
      if (text.substr(at).starts_with(vocabulary_.token(id))) return {at, vocabulary_.token(id).size(), id};
  return {text.size(), 0, 0};
}

// Matches the longest token at the start of the word, then repeatedly the longest ## token of the rest; [UNK] if a
// match fails.
void WordPiece::match(const Word& word, std::vector<Token>& tokens) const {
  const size_t first = tokens.size(), size = word.text.size();
  if (word.chars <= max_word_) {
    ByteTrie::Match match = beginnings_.longest(word.text);
    for (size_t at = 0; match.length > 0; match = continuations_.longest(word.text.substr(at))) {
      const SourceRange source = word.source(at, at + match.length);
      tokens.push_back({match.value, source.begin, source.end});
      at += match.length;
      if (at == size) return;
    }
    tokens.resize(first);
  }
  const SourceRange source = word.source(0, size);
  tokens.push_back({vocabulary_.unk(), source.begin, source.end});
}

}  // namespace godwit::data
