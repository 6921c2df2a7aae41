// Images and texts that a model can learn in seconds.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/philox.h"
#include "tests/apps/programs/program_test.h"

namespace godwit {

inline std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

// Writes IDX files with images of `width` × 64 / `width` pixels in four classes. Each image has one bright quadrant in
// noise.
inline void write_images(const std::filesystem::path& folder, const std::string& prefix, uint32_t count,
                         uint32_t label_count, uint32_t width = 8) {
  std::string images = big_endian(0x803) + big_endian(count) + big_endian(64 / width) + big_endian(width);
  std::string labels = big_endian(0x801) + big_endian(label_count);
  RandomStream random(count, Purpose::test);
  for (uint32_t i = 0; i < count; ++i)
    for (uint32_t p = 0; p < 64; ++p)
      images += static_cast<char>(random.below(60) + ((p / 32 * 2 + p % 8 / 4) == i % 4 ? 150 : 0));
  for (uint32_t i = 0; i < label_count; ++i) labels += static_cast<char>(i % 4);
  write_file(folder / (prefix + "-images-idx3-ubyte"), images);
  write_file(folder / (prefix + "-labels-idx1-ubyte"), labels);
}

inline const std::vector<std::string> kNames{"anna", "bert", "cleo", "dora", "emil", "fred", "gina", "hugo"};
inline const std::vector<std::string> kTowns{"oslo", "rome", "bern", "lima", "kyiv", "doha", "riga", "cork"};

// Sentences of the form "NAME lives in TOWN and likes TOWN". Masked words follow from neighboring words.
inline std::string story(size_t documents) {
  std::string text;
  for (size_t i = 0; i < documents; ++i) {
    for (size_t k = 0; k < 6; ++k)
      text += kNames[(i + k) % 8] + " lives in " + kTowns[(i + k) % 8] + " and likes " + kTowns[(i + k) % 8] + " .\n";
    text += "\n";
  }
  return text;
}

// Each paragraph states where a person lives; its question asks for the place.
inline nlohmann::json squad(size_t paragraphs) {
  nlohmann::json all = nlohmann::json::array();
  for (size_t i = 0; i < paragraphs; ++i) {
    const std::string name = kNames[i % 8], town = kTowns[(3 * i + i / 8) % 8];
    const std::string context =
        (i % 3 ? "" : "so it is that ") + name + " lives in " + town + (i % 2 ? " now ." : " .");
    const nlohmann::json answer = {{"text", town}, {"answer_start", context.find(town)}};
    const nlohmann::json question = {{"id", "q" + std::to_string(i)},
                                     {"question", "where does " + name + " live ?"},
                                     {"answers", nlohmann::json::array({answer})}};
    all.push_back({{"context", context}, {"qas", nlohmann::json::array({question})}});
  }
  return {{"version", "1.1"}, {"data", nlohmann::json::array({{{"title", "t"}, {"paragraphs", all}}})}};
}

inline std::string reviews(size_t count) {
  std::string text = "sentence\tlabel\n";
  for (size_t i = 0; i < count; ++i)
    text += kNames[i % 8] + " in " + kTowns[i / 3 % 8] + (i % 2 ? " was good and fine\t1\n" : " was bad and poor\t0\n");
  return text;
}

}  // namespace godwit
