// Documents: the texts of a file, or of the files in a folder.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace godwit::data {

// Returns `path` itself if it is a file. For a folder, returns the files in the folder and its subfolders whose names
// end with one of `endings` according to has_ending(), in the order of their paths. Follows links, except links to a
// folder that contains the link. Omits the merges.txt of a tokenizer, files and subfolders whose names begin with a
// dot, and folders of training runs. Throws if there is no file, for a broken link with one of the endings or without
// an extension, and for other objects with one of the endings, such as a pipe.
std::vector<std::string> files_below(const std::string& path, const std::vector<std::string>& endings);

// The text of a file without the UTF-8 byte-order mark. Throws an Error that names `file` for UTF-16.
std::string_view utf8_text(std::span<const uint8_t> bytes, const std::string& file);
// Returns `text`, with a byte-order mark in front if utf8_text() would otherwise change or refuse it.
std::string marked_utf8(std::string text);

// Whether the name of a file ends with `ending`, which is in lower case. Letters of the name may be in upper case.
bool has_ending(const std::string& file, std::string_view ending);

// Endings of the text files in a folder: .txt and .jsonl, also with .gz.
const std::vector<std::string>& text_endings();

// Files of a dataset, by split.
struct TextParts {
  std::vector<std::string> train, valid, test;  // names of files, in order
};
// Divides files by their names and the names of their folders below `path`. Names that end with val, valid, validation
// or dev are `valid`, and names that end with test are `test`, as in ptb.valid.txt or test/1.jsonl. Letters may be in
// upper case. All other files are `train`. If there are no other files, all files are `train`.
TextParts text_parts(const std::vector<std::string>& files, const std::string& path);

// Throws if the name of a file indicates JSON or JSONL. For readers that accept only plain text.
void check_plain_text(const std::string& file);

// Calls f for each document of a file, which may be gzip, with the offset of the document in the unpacked file (0 for a
// .jsonl file and the packaged Bible). In a .jsonl file, each line is an object whose member `text` is a document; of
// several such members, the last one. Any other file is one document. Byte-order marks and empty documents are omitted.
// Throws an Error that names file and line for a .json file, for a 0 byte in a document that is not from a .jsonl file,
// and for a file of more than 8 GiB after unpacking.
void each_document(const std::string& file, const std::function<void(std::string_view text, size_t begin)>& f);

}  // namespace godwit::data
