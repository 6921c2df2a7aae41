#include "data/text/byte_bpe_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "data/file.h"
#include "data/json_file.h"
#include "engine/check.h"
#include "engine/excerpt.h"
#include "engine/text_file.h"

namespace godwit::data {
namespace {

using Ids = std::unordered_map<std::string, int32_t>;
constexpr std::string_view kEndOfText = "<|endoftext|>";

// The tokens by id.
std::vector<std::string> read_vocab(const JsonNode& vocab, Ids* ids) {
  std::vector<std::pair<std::string, int64_t>> entries;
  vocab.each_member([&](const std::string& token, const JsonNode& id) {
    check(!token.empty(), vocab.where(), "contains an empty token");
    entries.emplace_back(token, id.integer());
  });
  std::vector<std::string> tokens(entries.size());
  for (auto& [token, id] : entries) {
    check(id >= 0 && id < std::ssize(tokens), vocab.where(), "the id of \"", excerpt(token), "\" is ", id,
          ", expected 0 to ", tokens.size() - 1, " for ", tokens.size(), " tokens");
    std::string& place = tokens[static_cast<size_t>(id)];
    check(place.empty(), vocab.where(), "the id ", id, " belongs to two tokens, \"", excerpt(place), "\" and \"",
          excerpt(token), '"');
    ids->emplace(token, static_cast<int32_t>(id));
    place = std::move(token);
  }
  return tokens;
}

int32_t id_of(const Ids& ids, const std::string& token, const std::string& where) {
  const auto found = ids.find(token);
  check(found != ids.end(), where, "\"", excerpt(token), "\" is not in the vocabulary");
  return found->second;
}

std::pair<int32_t, int32_t> merge_of(const std::string& left, const std::string& right, const Ids& ids,
                                     const std::string& where) {
  const std::pair<int32_t, int32_t> merge{id_of(ids, left, where), id_of(ids, right, where)};
  check(ids.contains(left + right), where, "makes \"", excerpt(left + right), "\", which is not in the vocabulary");
  return merge;
}

// `where` begins messages: "FILE: line 3: ".
std::pair<int32_t, int32_t> merge_of(std::string_view line, const Ids& ids, const std::string& where) {
  const size_t space = line.find(' ');
  check(space != line.npos && line.find(' ', space + 1) == line.npos, where, "\"", excerpt(line),
        "\" is not a merge, expected two tokens with one space between them");
  const std::string left(line.substr(0, space)), right(line.substr(space + 1));
  return merge_of(left, right, ids, where);
}

std::string merge_text(const ByteBpeModel& model, const std::pair<int32_t, int32_t>& merge) {
  return model.tokens[static_cast<size_t>(merge.first)] + ' ' + model.tokens[static_cast<size_t>(merge.second)];
}

// Whether read_bpe() can restore the model from vocab.json and merges.txt alone.
bool is_plain(const ByteBpeModel& model) {
  if (model.pattern != WordPatternKind::gpt2 || model.nfc || model.ignore_merges || model.added_only > 0) return false;
  const bool has_end = std::ranges::find(model.tokens, kEndOfText) != model.tokens.end();
  if (model.added.size() != (has_end ? 1 : 0)) return false;
  for (const AddedToken& end : model.added)
    if (end.content != kEndOfText || !end.special || end.lstrip || end.rstrip) return false;
  return std::ranges::all_of(model.merges, [&](const auto& merge) {
    const std::string line = merge_text(model, merge);
    const auto separates = [](char c) { return c == ' ' || c == '\n' || c == '\r'; };
    return std::ranges::count_if(line, separates) == 1 && !line.starts_with("#version");
  });
}

nlohmann::ordered_json vocab_json(const ByteBpeModel& model) {
  nlohmann::ordered_json vocab = nlohmann::ordered_json::object();
  auto& members = vocab.get_ref<nlohmann::ordered_json::object_t&>();
  const size_t count = model.tokens.size() - model.added_only;
  members.reserve(count);
  for (size_t id = 0; id < count; ++id)  // operator[] would search all members
    members.emplace_back(std::piecewise_construct, std::forward_as_tuple(model.tokens[id]), std::forward_as_tuple(id));
  return vocab;
}

void check_text(const JsonNode& node, const std::string& expected) {
  check(node.text() == expected, node.where(), "is \"", excerpt(node.text()), "\", expected \"", expected, '"');
}

void check_false(const std::optional<JsonNode>& node) {
  check(!node || !node->boolean(), node ? node->where() : "", "is true, expected false");
}

void check_empty(const std::optional<JsonNode>& node) {
  check(!node || node->text().empty(), node ? node->where() : "", "is \"", node ? excerpt(node->text()) : "",
        "\", expected null");
}

void check_kind(const JsonNode& model) {
  constexpr const char* kSupported = "; expected a byte-level BPE model such as GPT-2, LLaMA 3 or Qwen 2";
  if (const auto type = model.find("type"))  // not written by early versions
    check(type->text() == "BPE", type->where(), "is \"", excerpt(type->text()), '"', kSupported);
  if (const auto fallback = model.find("byte_fallback"))
    check(!fallback->boolean(), fallback->where(), "is true: a SentencePiece-style BPE", kSupported);
  check(!model.find("dropout"), model.where(), "has a dropout, expected null");
  check_empty(model.find("continuing_subword_prefix"));
  check_empty(model.find("end_of_word_suffix"));
}

void check_byte_level(const JsonNode& node) {
  check_text(node.member("type"), "ByteLevel");
  if (const auto prefix = node.find("add_prefix_space"))
    check(!prefix->boolean(), prefix->where(), kPrefixSpace);
}

bool uses_regex(const JsonNode& byte_level) {
  const auto use = byte_level.find("use_regex");
  return !use || use->boolean();
}

WordPatternKind read_pattern(const JsonNode& node) {
  const JsonNode type = node.member("type");
  if (type.text() == "ByteLevel") {
    check_byte_level(node);
    check(uses_regex(node), node.where(), "use_regex is false, expected true or a Split before it");
    return WordPatternKind::gpt2;
  }
  check(type.text() == "Sequence", type.where(), "is \"", excerpt(type.text()),
        "\", expected ByteLevel, or a Sequence of Split and ByteLevel");
  std::optional<WordPatternKind> pattern;
  int count = 0;
  node.member("pretokenizers").each([&](const JsonNode& part) {
    if (++count == 1) {
      check_text(part.member("type"), "Split");
      check_text(part.member("behavior"), "Isolated");
      check_false(part.find("invert"));
      const JsonNode regex = part.member("pattern").member("Regex");
      for (const WordPatternKind kind : {WordPatternKind::gpt2, WordPatternKind::llama3, WordPatternKind::qwen2})
        if (regex.text() == regex_of(kind)) pattern = kind;
      check(pattern.has_value(), regex.where(), "is \"", excerpt(regex.text(), 300),
            "\"; expected the pattern of GPT-2, LLaMA 3 or Qwen 2");
    } else {
      check_byte_level(part);
      check(!uses_regex(part), part.where(), "use_regex is true, expected false behind a Split");
    }
  });
  check(count == 2, node.where(), "pretokenizers has ", count, " entries, expected Split and ByteLevel");
  return *pattern;
}

AddedToken read_added(const JsonNode& node) {
  check_false(node.find("single_word"));
  const auto flag = [&](const char* name) {
    const auto value = node.find(name);
    return value && value->boolean();
  };
  const JsonNode id = node.member("id");
  check(id.integer() >= 0 && id.integer() <= INT32_MAX, id.where(), "is ", id.integer(), ", expected an id");
  return {.id = static_cast<int32_t>(id.integer()),
          .content = node.member("content").text(),
          .special = flag("special"),
          .lstrip = flag("lstrip"),
          .rstrip = flag("rstrip"),
          .normalized = flag("normalized")};
}

// Appends tokens that are missing from the vocabulary.
void read_added_tokens(const JsonNode& list, ByteBpeModel* model) {
  list.each([&](const JsonNode& node) {
    AddedToken added = read_added(node);
    const auto known = static_cast<size_t>(added.id);
    if (known == model->tokens.size()) {
      model->tokens.push_back(added.content);
      ++model->added_only;
    }
    check(known < model->tokens.size(), node.where(), "id is ", added.id, ", expected at most ", model->tokens.size(),
          ", the next free one");
    check(model->tokens[known] == added.content, node.where(), "\"", excerpt(added.content), "\" has the id ", added.id,
          ", but this id belongs to \"", excerpt(model->tokens[known]), '"');
    model->added.push_back(std::move(added));
  });
}

bool read_normalizer(const std::optional<JsonNode>& node) {
  if (!node) return false;
  const JsonNode type = node->member("type");
  check(type.text() == "NFC", type.where(), "is \"", excerpt(type.text()), "\", expected none or NFC");
  return true;
}

}  // namespace

ByteBpe read_bpe(const std::string& vocab, const std::string& merges) {
  ByteBpeModel model;
  Ids ids;
  {
    const JsonFile file(vocab, "a vocab.json");
    model.tokens = read_vocab(file.root(), &ids);
  }
  const std::vector<uint8_t> bytes = read_file(merges, "a merges.txt", uint64_t{1} << 30);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    at = end + 1;
    ++number;
    if (line.starts_with("#version") || (line.empty() && at >= text.size())) continue;
    model.merges.push_back(merge_of(line, ids, merges + ": line " + std::to_string(number) + ": "));
  }
  if (const auto end = ids.find(std::string(kEndOfText)); end != ids.end())
    model.added.push_back({.id = end->second, .content = std::string(kEndOfText)});
  return with_place(vocab, [&] { return ByteBpe(std::move(model)); });
}

void write_bpe(const std::string& vocab, const std::string& merges, const ByteBpeModel& model) {
  std::string lines = "#version: 0.2\n";
  for (const auto& merge : model.merges) lines += merge_text(model, merge) + '\n';
  write_text_file(vocab, vocab_json(model).dump());
  write_text_file(merges, lines);
}

void write_bpe_json(const std::string& path, const ByteBpeModel& model) {
  using Json = nlohmann::ordered_json;
  Json added = Json::array(), merges = Json::array();
  for (const AddedToken& token : model.added)
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", false},
                     {"lstrip", token.lstrip},
                     {"rstrip", token.rstrip},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  for (const auto& [left, right] : model.merges)
    merges.push_back({model.tokens[static_cast<size_t>(left)], model.tokens[static_cast<size_t>(right)]});
  const auto byte_level = [](bool regex) {
    return Json{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", regex}};
  };
  Json splitting = byte_level(true);
  if (model.pattern != WordPatternKind::gpt2)
    splitting = {{"type", "Sequence"},
                 {"pretokenizers",
                  {{{"type", "Split"},
                    {"pattern", {{"Regex", regex_of(model.pattern)}}},
                    {"behavior", "Isolated"},
                    {"invert", false}},
                   byte_level(false)}}};
  const Json tokenizer = {{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens", added},
                          {"normalizer", model.nfc ? Json{{"type", "NFC"}} : Json(nullptr)},
                          {"pre_tokenizer", splitting},
                          {"post_processor", byte_level(true)},
                          {"decoder", byte_level(true)},
                          {"model",
                           {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"ignore_merges", model.ignore_merges},
                            {"vocab", vocab_json(model)},
                            {"merges", merges}}}};
  write_text_file(path, tokenizer.dump(1) + "\n");
}

ByteBpe read_bpe_json(const std::string& path) {
  const JsonFile file(path, "a tokenizer.json");
  const JsonNode root = file.root(), bpe = root.member("model");
  check_kind(bpe);
  ByteBpeModel model;
  model.pattern = read_pattern(root.member("pre_tokenizer"));
  model.nfc = read_normalizer(root.find("normalizer"));
  if (const auto ignore = bpe.find("ignore_merges")) model.ignore_merges = ignore->boolean();
  Ids ids;
  model.tokens = read_vocab(bpe.member("vocab"), &ids);
  bpe.member("merges").each([&](const JsonNode& merge) {
    if (merge.is_text()) {
      model.merges.push_back(merge_of(merge.text(), ids, merge.where()));
      return;
    }
    std::vector<std::string> pair;
    merge.each([&](const JsonNode& token) { pair.push_back(token.text()); });
    check(pair.size() == 2, merge.where(), "has ", pair.size(), " tokens, expected 2");
    model.merges.push_back(merge_of(pair[0], pair[1], ids, merge.where()));
  });
  if (const auto added = root.find("added_tokens")) read_added_tokens(*added, &model);
  return with_place(path, [&] { return ByteBpe(std::move(model)); });
}

void ByteBpe::save(const std::string& folder) const {
  if (is_plain(model_)) write_bpe(folder + "/vocab.json", folder + "/merges.txt", model_);
  write_bpe_json(folder + "/" + kTokenizerJson, model_);
  // Without this file, AutoTokenizer of transformers uses the pattern of the model's type.
  nlohmann::ordered_json config = {{"tokenizer_class", is_plain(model_) ? "GPT2Tokenizer" : "PreTrainedTokenizerFast"}};
  if (const auto end = end_of_text()) config["eos_token"] = token(*end);
  write_text_file(folder + "/tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace godwit::data
