#include "data/text/train_bpe.h"

#include <algorithm>
#include <array>

#include "data/text/byte_characters.h"
#include "data/text/pair_trainer.h"
#include "engine/check.h"
#include "engine/utf8.h"

namespace godwit::data {

ByteBpe train_bpe(const TextReader& next, const BpeTraining& training) {
  const std::string end_of_text = "<|endoftext|>";
  std::array<char32_t, 256> characters;
  for (size_t byte = 0; byte < 256; ++byte) characters[byte] = character_of(static_cast<uint8_t>(byte));
  std::ranges::sort(characters);
  std::vector<std::string> tokens{end_of_text};
  std::array<int32_t, 256> ids;
  for (const char32_t character : characters) {
    std::string token;
    append_utf8(token, character);
    ids[static_cast<uint8_t>((*from_byte_characters(token))[0])] = static_cast<int32_t>(tokens.size());
    tokens.push_back(std::move(token));
  }
  check(training.size >= std::ssize(tokens), "train_bpe: a vocabulary of ", training.size,
        " tokens, expected at least 257: <|endoftext|> and 256 bytes");
  const WordPattern pattern(training.pattern);
  const WordFinder find = [&](std::string_view text, const std::function<void(std::string_view)>& add) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = pattern.end_of_word(text, at);
      add(text.substr(at, end - at));
      at = end;
    }
  };
  std::vector<PairTrainer::Word> words;
  for (const auto& [word, count] : count_words(next, find)) {
    words.push_back({{}, count});
    for (const char byte : word) words.back().ids.push_back(ids[static_cast<uint8_t>(byte)]);
  }
  PairTrainer trainer(std::move(tokens), std::move(words), 0);
  trainer.run(training.size, training.min_frequency);
  return ByteBpe({.tokens = std::move(trainer.tokens()),
                  .merges = trainer.merges(),
                  .added = {{.id = 0, .content = end_of_text}},
                  .pattern = training.pattern});
}

}  // namespace godwit::data
