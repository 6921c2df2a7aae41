// Times the training of a WordPiece vocabulary on the lines of a file, and writes it for bench/peers/vocabulary.py.
//   bench_vocabulary TEXT SIZE THREADS [OUT]
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "bench/program.h"
#include "data/text/train_wordpiece.h"
#include "engine/check.h"
#include "engine/context.h"

using namespace godwit;

namespace {

void run(const std::vector<std::string>& args, const char* usage) {
  check(args.size() == 3 || args.size() == 4, usage);
  std::ifstream file(args[0], std::ios::binary);
  check(file.is_open(), "cannot read ", args[0]);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);

  Context wanted = context();
  wanted.threads = static_cast<int>(bench::whole_number(args[2], "THREADS"));
  const ContextGuard guard(wanted);
  const auto start = std::chrono::steady_clock::now();
  const data::Vocabulary vocabulary = data::train_wordpiece(lines, {.size = bench::whole_number(args[1], "SIZE")});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%lld tokens in %.2f s\n", static_cast<long long>(vocabulary.size()), seconds.count());
  if (args.size() > 3) data::write_vocabulary(args[3], vocabulary);
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: bench_vocabulary TEXT SIZE THREADS [OUT]\n"
      "Trains a WordPiece vocabulary of SIZE tokens on the lines of a file; bench/peers/vocabulary.py compares OUT.";
  return bench::run_program(argc, argv, usage, [&] {
    run({argv + 1, argv + argc}, usage);
  });
}
