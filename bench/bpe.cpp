// Measures a language model's tokenizer on many texts with one thread: megabytes and tokens per second of CPU time.
//   bench_bpe TOKENIZER TEXTS [ROUNDS] [OUT]
// TOKENIZER: a folder or file for load_tokenizer(). TEXTS: the length (uint32) and the bytes of each text. OUT: the
// number of tokens of each text and their ids (int32), and the length (int32) and the bytes of their decoded text.
// bench/peers/bpe.py creates TEXTS and compares OUT.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "bench/program.h"
#include "bench/texts.h"
#include "data/file.h"
#include "data/text/byte_bpe.h"
#include "data/text/tokenizer.h"
#include "engine/check.h"

using namespace godwit;

namespace {

// Whether decoding returns every text; see ByteBpe::encode().
bool decodes_exactly(const data::Tokenizer& tokenizer) {
  const auto* bpe = dynamic_cast<const data::ByteBpe*>(&tokenizer);
  if (!bpe) return true;
  return !bpe->model().nfc && std::ranges::none_of(bpe->model().added, [&](const data::AddedToken& token) {
    return token.lstrip || token.rstrip || bpe->token(token.id) != token.content;
  });
}

void run(const std::vector<std::string>& args, const char* usage) {
  check(args.size() >= 2 && args.size() <= 4, usage);
  const auto tokenizer = data::load_tokenizer(args[0]);
  const std::vector<uint8_t> bytes = data::read_file(args[1], "texts");
  const std::vector<std::string_view> texts = bench::texts_in(bytes);
  if (args.size() > 3) {
    std::ofstream out(args[3], std::ios::binary);
    const auto write = [&](size_t count, const void* values, size_t size) {
      const auto written = static_cast<int32_t>(count);
      out.write(reinterpret_cast<const char*>(&written), 4);
      out.write(static_cast<const char*>(values), static_cast<std::streamsize>(size));
    };
    for (std::string_view text : texts) {
      const std::vector<int32_t> ids = tokenizer->encode(text);
      const std::string decoded = tokenizer->decode(ids);
      write(ids.size(), ids.data(), 4 * ids.size());
      write(decoded.size(), decoded.data(), decoded.size());
    }
    check(out.flush().good(), "cannot write ", args[3]);
  }
  const int64_t rounds = args.size() > 2 ? bench::whole_number(args[2], "ROUNDS", 0) : 5;
  if (!decodes_exactly(*tokenizer))
    std::printf("decoding changes some texts by design (NFC or added tokens), so it is not compared with the texts\n");
  else if (rounds > 0)
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
      "OUT: number of tokens of each text and their ids (int32), length (int32) and bytes of the decoded text\n"
      "ROUNDS: 5";
  return bench::run_program(argc, argv, usage, [&] { run({argv + 1, argv + argc}, usage); });
}
