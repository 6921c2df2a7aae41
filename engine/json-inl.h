// nlohmann/json for source files. parse_json() and dump_json() replace json::parse() and dump(), whose templates take
// seconds to compile in each source file.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace godwit {

nlohmann::json parse_json(std::string_view text);
std::string dump_json(const nlohmann::json& value, int indent = -1, bool ascii = false,
                      nlohmann::json::error_handler_t invalid_utf8 = nlohmann::json::error_handler_t::strict);
std::string dump_json(const nlohmann::ordered_json& value, int indent = -1, bool ascii = false,
                      nlohmann::json::error_handler_t invalid_utf8 = nlohmann::json::error_handler_t::strict);

}  // namespace godwit
