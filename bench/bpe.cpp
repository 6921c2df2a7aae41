// Measures a language model's tokenizer on many texts with one thread: megabytes and tokens per second of CPU time.
//   bench_bpe TOKENIZER TEXTS [ROUNDS] [OUT]
// TOKENIZER: a folder or file for load_tokenizer(). TEXTS: the length (uint32) and the bytes of each text. OUT: the
// number of tokens of each text and their ids (int32). bench/peers/bpe.py creates TEXTS and compares OUT.
#include <fstream>
#include <string>
#include <vector>

#include "bench/program.h"
#include "bench/texts.h"
#include "data/file.h"
#include "data/text/tokenizer.h"
#include "engine/check.h"

using namespace godwit;

namespace {

void run(const std::vector<std::string>& args, const char* usage) {
  check(args.size() >= 2 && args.size() <= 4, usage);
  const auto tokenizer = data::load_tokenizer(args[0]);
  const std::vector<uint8_t> bytes = data::read_file(args[1], "texts");
  const std::vector<std::string_view> texts = bench::texts_in(bytes);
  if (args.size() > 3) {
    std::ofstream out(args[3], std::ios::binary);
    for (std::string_view text : texts) {
      const std::vector<int32_t> ids = tokenizer->encode(text);
      const auto count = static_cast<int32_t>(ids.size());
      out.write(reinterpret_cast<const char*>(&count), 4);
      out.write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(4 * ids.size()));
    }
    check(out.flush().good(), "cannot write ", args[3]);
  }
  const int64_t rounds = args.size() > 2 ? bench::whole_number(args[2], "ROUNDS", 0) : 5;
  if (rounds > 0)
    for (std::string_view text : texts)
      check(tokenizer->decode(tokenizer->encode(text)) == text, "decoding does not return a text of ", text.size(),
            " bytes");
  bench::time_rounds(texts, rounds, [&](std::string_view text) { return tokenizer->encode(text).size(); });
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_bpe TOKENIZER TEXTS [ROUNDS] [OUT]\n"
      "Byte-level BPE on many texts with one thread: megabytes and tokens per second of CPU time.\n"
      "TOKENIZER: tokenizer.json, vocab.json next to its merges.txt, or their folder\n"
      "TEXTS: the length (uint32) and bytes of each text; bench/peers/bpe.py makes and compares it\n"
      "OUT: number of tokens of each text and their ids (int32)   ROUNDS: 5";
  return bench::run_program(argc, argv, usage, [&] { run({argv + 1, argv + argc}, usage); });
}
