#include "data/text/basic_tokenizer.h"

#include "engine/utf8.h"

namespace godwit::data {

void BasicTokenizer::Chunk::clear() {
  bytes.clear();
  sources.clear();
  words.clear();
  word_ = 0;
  chars_ = 0;
}

void BasicTokenizer::Chunk::append(std::string_view code, SourceRange source) {
  bytes.append(code);
  sources.insert(sources.end(), code.size(), source);
  ++chars_;
}

void BasicTokenizer::Chunk::append(uint32_t entry, SourceRange source) {
  const UnicodeTable::Kind kind = UnicodeTable::kind(entry);
  if (kind != UnicodeTable::unchanged && kind != UnicodeTable::word) end_word();
  if (kind == UnicodeTable::space) return;
  sources.insert(sources.end(), append_utf8(bytes, UnicodeTable::value(entry)), source);
  ++chars_;
  if (kind == UnicodeTable::alone) end_word();
}

void BasicTokenizer::Chunk::end_word() {
  if (chars_ > 0) words.push_back({word_, bytes.size(), chars_});
  word_ = bytes.size();
  chars_ = 0;
}

BasicTokenizer::BasicTokenizer(const BasicTokenizerOptions& options) {
  const NormalizerOptions normal{options.lower_case, options.strip_accents.value_or(options.lower_case),
                                 options.split_cjk};
  table_ = std::make_shared<UnicodeTable>(normal);
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint32_t entry = byte < 0x80 ? table_->entry(byte) : 0;
    switch (UnicodeTable::kind(entry)) {
      case UnicodeTable::unchanged:
        ascii_[byte] = byte < 0x80 ? static_cast<uint8_t>(byte) : uint8_t{kOther};
        break;
      case UnicodeTable::word:
        ascii_[byte] = static_cast<uint8_t>(UnicodeTable::value(entry));
        break;
      case UnicodeTable::alone:
        ascii_[byte] = kAlone;
        break;
      case UnicodeTable::space:
        ascii_[byte] = kSpace;
        break;
      default:
        ascii_[byte] = kOther;
    }
  }
}

void BasicTokenizer::normalize(std::string_view text, size_t begin, size_t end, Chunk& chunk) const {
  for (size_t at = begin; at < end;) {
    const CodePoint code = decode_utf8(text.substr(0, end), at);
    const SourceRange source{static_cast<uint32_t>(at), static_cast<uint32_t>(at + code.bytes)};
    const uint32_t entry = table_->entry(code.value);
    switch (UnicodeTable::kind(entry)) {
      case UnicodeTable::unchanged:
        chunk.append(text.substr(at, code.bytes), source);
        break;
      case UnicodeTable::removed:
        break;
      case UnicodeTable::several:
        for (uint32_t part : table_->many(entry)) chunk.append(part, source);
        break;
      case UnicodeTable::reordered:
        chunk.clear();
        normalize_reordered(text, begin, end, chunk);
        return;
      default:
        chunk.append(entry, source);
    }
    at += code.bytes;
  }
  chunk.end_word();
}

void BasicTokenizer::normalize_reordered(std::string_view text, size_t begin, size_t end, Chunk& chunk) const {
  std::vector<UnicodeTable::Char> codes;
  for (size_t at = begin; at < end;) {
    const CodePoint code = decode_utf8(text.substr(0, end), at);
    codes.push_back({code.value, static_cast<uint32_t>(at), static_cast<uint32_t>(at + code.bytes)});
    at += code.bytes;
  }
  for (const UnicodeTable::Char& part : table_->normalize(std::move(codes)))
    chunk.append(part.entry, {part.begin, part.end});
  chunk.end_word();
}

}  // namespace godwit::data
