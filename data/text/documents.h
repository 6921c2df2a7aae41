// Documents: the texts of a file or of the files of a folder.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace godwit::data {

// `path` itself, or the files in a folder and its subfolders whose names end with one of `endings` by has_ending(), in
// order of their paths. Follows links, except links to a folder that contains the link. Leaves out the merges.txt of a
// tokenizer, and files and subfolders whose names begin with a dot. Throws if there is no file, for a broken link with
// one of the endings or without an extension, and for anything else with one of the endings, such as a pipe.
std::vector<std::string> files_below(const std::string& path, const std::vector<std::string>& endings);

// The text of a file without the byte-order mark of UTF-8. Throws for UTF-16, naming `file`.
std::string_view utf8_text(std::span<const uint8_t> bytes, const std::string& file);

// Whether the name of a file ends with `ending`, which is in lower case. Letters of the name may be in upper case.
bool has_ending(const std::string& file, std::string_view ending);

// Endings of the text files of a folder: .txt and .jsonl, also with .gz.
const std::vector<std::string>& text_endings();

// Throws if the name of a file says that it is JSON or JSONL, for readers of plain text only.
void check_plain_text(const std::string& file);

// Calls f for each document of a file, which may be gzip. A line of a .jsonl file is an object whose member `text` is a
// document; any other file is one document. A byte-order mark and empty documents are left out. Throws an Error naming
// file and line, for a .json file, for a document of another file with a byte 0, or if a file has more than 8 GiB after
// unpacking.
void each_document(const std::string& file, const std::function<void(std::string_view text)>& f);

}  // namespace godwit::data
