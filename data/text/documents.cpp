#include "data/text/documents.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/file.h"
#include "data/text/bible.h"
#include "data/text/tokenizer.h"
#include "engine/check.h"
#include "engine/json-inl.h"
#include "engine/json_text.h"

namespace godwit::data {
namespace {

namespace fs = std::filesystem;

bool ends_with_one(const std::string& name, const std::vector<std::string>& endings) {
  return std::ranges::any_of(endings, [&](const std::string& ending) { return has_ending(name, ending); });
}

bool is_merges(const fs::path& file) {
  return file.filename() == "merges.txt" && has_tokenizer(file.parent_path().string());
}

// The part of a dataset in the name of a file or folder: "valid" for ptb.valid, "test", or "" for other names.
std::string part_of(const std::string& name) {
  std::string last = name.substr(name.find_last_of("._-") + 1);  // all of it without a separator
  std::ranges::transform(last, last.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (last == "val" || last == "valid" || last == "validation" || last == "dev") return "valid";
  return last == "test" ? "test" : "";
}

std::string without_ending(std::string file) {
  for (const std::string& ending : text_endings())
    if (has_ending(file, ending)) {
      file.resize(file.size() - ending.size());
      break;
    }
  return file;
}

std::string text_of(std::string_view line, const std::string& where) {
  check_json(line, where, {.depth = 64});
  const nlohmann::json value = parse_json(line);
  check(value.is_object(), where, " is not a JSON object, expected an object with the member \"text\"");
  const auto text = value.find("text");
  check(text != value.end() && text->is_string(), where, " its member \"text\" is ",
        text == value.end() ? "missing" : "not a string");
  return text->get<std::string>();
}

constexpr std::string_view kMark = "\xef\xbb\xbf";  // UTF-8 byte-order mark

bool is_utf16(std::string_view text) {
  return text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff") ||
         (text.size() > 1 && (text[0] == '\0') != (text[1] == '\0'));
}

}  // namespace

bool has_ending(const std::string& file, std::string_view ending) {
  const auto equal = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  return file.size() >= ending.size() && std::equal(file.end() - std::ssize(ending), file.end(), ending.begin(), equal);
}

const std::vector<std::string>& text_endings() {
  static const std::vector<std::string> endings{".txt", ".jsonl", ".txt.gz", ".jsonl.gz"};
  return endings;
}

TextParts text_parts(const std::vector<std::string>& files, const std::string& path) {
  TextParts parts;
  for (const std::string& file : files) {
    std::string part;
    for (const fs::path& name : fs::path(without_ending(file)).lexically_relative(path))
      if (part.empty()) part = part_of(name.string());
    (part == "valid" ? parts.valid : part == "test" ? parts.test : parts.train).push_back(file);
  }
  return parts.train.empty() ? TextParts{.train = files, .valid = {}, .test = {}} : parts;
}

std::vector<std::string> files_below(const std::string& path, const std::vector<std::string>& endings) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    const bool found = fs::exists(path, error);
    check(!error, path, ": cannot be read: ", error.message());
    check(found, path, ": no such file");
    return {path};
  }
  std::vector<std::string> files;
  std::vector<fs::path> parents{fs::canonical(path, error)};  // of the current entry, without links
  for (fs::recursive_directory_iterator at(path, fs::directory_options::follow_directory_symlink, error), end;
       !error && at != end; at.increment(error)) {
    std::error_code reason;
    const fs::file_status status = at->status(reason);
    const std::string name = at->path().filename().string();
    if (name.starts_with('.')) {  // hidden, for example .ipynb_checkpoints
      at.disable_recursion_pending();
      continue;
    }
    const bool expected = ends_with_one(name, endings);
    if (fs::is_directory(status)) {
      parents.resize(static_cast<size_t>(at.depth()) + 1);
      parents.push_back(fs::canonical(at->path(), error));
      if (std::find(parents.begin(), parents.end() - 1, parents.back()) != parents.end() - 1 ||
          is_run_folder(at->path().string()))
        at.disable_recursion_pending();
    } else if (fs::is_regular_file(status)) {
      if (expected && !is_merges(at->path())) files.push_back(at->path().string());
    } else {
      // A broken link without an extension may be to a folder.
      check(fs::exists(status) || !(expected || at->path().extension().empty()), at->path().string(),
            ": cannot be read (", reason.message(), "); repair or remove the link");
      check(!expected, at->path().string(), ": is not a regular file; remove it from the folder");
    }
    if (error) break;
  }
  check(!error, path, ": cannot be read: ", error.message());
  std::string list;
  for (const std::string& ending : endings) list += (list.empty() ? "*" : ", *") + ending;
  check(!files.empty(), path, ": has no files ", list);
  std::ranges::sort(files);
  return files;
}

std::string_view utf8_text(std::span<const uint8_t> bytes, const std::string& file) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  check(!is_utf16(text), file, ": is UTF-16; convert it to UTF-8");
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

std::string marked_utf8(std::string text) {
  if (text.starts_with(kMark) || is_utf16(text)) text.insert(0, kMark);
  return text;
}

void check_plain_text(const std::string& file) {
  for (const char* ending : {".json", ".json.gz", ".jsonl", ".jsonl.gz"})
    check(!has_ending(file, ending), file,
          ": JSON is not read here, expected plain text; write the texts to a file *.txt");
}

void each_document(const std::string& file, const std::function<void(std::string_view, size_t)>& f) {
  check(!has_ending(file, ".json") && !has_ending(file, ".json.gz"), file,
        ": JSON is not read, expected text or JSONL; rename a file with one JSON object per line to *.jsonl");
  const std::vector<uint8_t> bytes = read_unpacked(file, "a text file");
  if (is_bible(bytes)) return f(bible_text(bytes, file), 0);
  const std::string_view all = utf8_text(bytes, file);
  if (!has_ending(file, ".jsonl") && !has_ending(file, ".jsonl.gz")) {
    const size_t zero = all.find('\0');
    check(zero == all.npos, file, ": is not a text in UTF-8: byte ", zero + bytes.size() - all.size(), " is 0");
    if (!all.empty()) f(all, bytes.size() - all.size());
    return;
  }
  int64_t number = 0;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    const std::string_view line = all.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string text = text_of(line, file + ": line " + std::to_string(number) + ":");
    if (!text.empty()) f(text, 0);
  }
}

}  // namespace godwit::data
