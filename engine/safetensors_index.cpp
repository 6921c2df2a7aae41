#include <filesystem>
#include <set>

#include "engine/check.h"
#include "engine/excerpt.h"
#include "engine/json-inl.h"
#include "engine/json_text.h"
#include "engine/safetensors.h"
#include "engine/text_file.h"

namespace godwit {
namespace {

std::string read_index(const std::string& path) {
  std::error_code error;
  check(std::filesystem::is_regular_file(path, error), path, ": is not a regular file");
  return read_text_file(path, 64, "; expected an index of safetensors files");
}

}  // namespace

std::map<std::string, std::string> parse_safetensors_index(const std::string& text, const std::string& path) {
  check_json(text, path + ":", {.depth = 8, .unique_names = true});
  const nlohmann::json index = parse_json(text);
  check(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(), path,
        ": has no object \"weight_map\"");
  std::map<std::string, std::string> file_of;
  for (const auto& [name, file] : index["weight_map"].items()) {
    check(file.is_string(), path, ": the file of ", excerpt(name), " is not a string");
    const std::string file_name = file.get<std::string>();
    check(file_name.ends_with(".safetensors") && file_name.find('/') == std::string::npos &&
              printable(file_name) == file_name,
          path, ": ", excerpt(file_name), " is not the name of a safetensors file in this folder");
    file_of.emplace(name, file_name);
  }
  return file_of;
}

std::string safetensors_index(const std::map<std::string, std::string>& file_of, int64_t bytes) {
  return dump_json(nlohmann::json{{"metadata", {{"total_size", bytes}}}, {"weight_map", file_of}}, 1) + "\n";
}

std::map<std::string, Tensor> map_weights(const std::string& path) {
  if (!path.ends_with(".index.json")) return map_safetensors(path);
  const std::map<std::string, std::string> file_of = parse_safetensors_index(read_index(path), path);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::set<std::string> files;
  for (const auto& [name, file] : file_of) files.insert(file);
  std::map<std::string, Tensor> all;
  for (const std::string& file : files) {
    const std::string file_path = (folder / file).string();
    for (auto& [name, tensor] : map_safetensors(file_path)) {
      const auto entry = file_of.find(name);
      check(entry != file_of.end() && entry->second == file, file_path, ": contains ", excerpt(name),
            ", which ", path, " does not list for this file");
      all.emplace(name, std::move(tensor));
    }
  }
  for (const auto& [name, file] : file_of)
    check(all.contains(name), (folder / file).string(), ": tensor ", excerpt(name), " is missing, but ", path,
          " lists it");
  return all;
}

}  // namespace godwit
