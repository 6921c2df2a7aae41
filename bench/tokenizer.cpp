// Measures WordPiece on many texts with one thread: megabytes and tokens per second of CPU time.
//   bench_tokenizer VOCAB TEXTS [ROUNDS] [OUT] [KEY=VALUE…]    keys: lower strip cjk max
//   TEXTS: the length (uint32) and the bytes of each text. OUT: the number of tokens of each text, then id, begin and
// end of each token (int32). bench/peers/tokenizer.py creates TEXTS and compares OUT.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "bench/program.h"
#include "bench/texts.h"
#include "data/file.h"
#include "data/text/wordpiece.h"
#include "engine/check.h"

using namespace godwit;

namespace {

data::WordPieceOptions options_from(const std::vector<std::string>& settings) {
  data::WordPieceOptions options;
  for (const std::string& setting : settings) {
    const std::string key = setting.substr(0, setting.find('='));
    const int value = std::atoi(setting.substr(setting.find('=') + 1).c_str());
    if (key == "lower") options.lower_case = value != 0;
    else if (key == "strip") options.strip_accents = value != 0;
    else if (key == "cjk") options.split_cjk = value != 0;
    else if (key == "max") options.max_word = value;
    else fail("unknown setting ", setting);
  }
  return options;
}

void run(const std::vector<std::string>& args, const char* usage) {
  const size_t plain = static_cast<size_t>(
      std::find_if(args.begin(), args.end(), [](const auto& arg) { return arg.find('=') != arg.npos; }) - args.begin());
  check(plain >= 2 && plain <= 4, usage);
  const data::WordPiece tokenizer(data::read_vocabulary(args[0]), options_from({args.begin() + plain, args.end()}));
  const std::vector<uint8_t> bytes = data::read_file(args[1], "texts");
  const std::vector<std::string_view> texts = bench::texts_in(bytes);
  if (plain > 3) {
    std::ofstream out(args[3], std::ios::binary);
    for (std::string_view text : texts) {
      const std::vector<data::Token> tokens = tokenizer.encode(text);
      const auto count = static_cast<uint32_t>(tokens.size());
      out.write(reinterpret_cast<const char*>(&count), 4);
      out.write(reinterpret_cast<const char*>(tokens.data()),
                static_cast<std::streamsize>(sizeof(data::Token) * count));
    }
    check(out.flush().good(), "cannot write ", args[3]);
  }
  const int64_t rounds = plain > 2 ? bench::whole_number(args[2], "ROUNDS", 0) : 5;
  bench::time_rounds(texts, rounds, [&](std::string_view text) { return tokenizer.encode(text).size(); });
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_tokenizer VOCAB TEXTS [ROUNDS] [OUT] [KEY=VALUE…]\n"
      "WordPiece on many texts with one thread: megabytes and tokens per second of CPU time.\n"
      "TEXTS: the length (uint32) and bytes of each text; bench/peers/tokenizer.py makes and compares it\n"
      "OUT: number of tokens of each text, then id, begin and end of each (int32)   ROUNDS: 5\n"
      "keys: lower strip cjk max";
  return bench::run_program(argc, argv, usage, [&] { run({argv + 1, argv + argc}, usage); });
}
