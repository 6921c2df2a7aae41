// The program for libFuzzer: fuzz --target=NAME [libFuzzer's arguments]; fuzz --list prints the names.
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>

#include "tests/fuzz/target.h"

namespace {

std::optional<godwit::fuzz::Target> chosen;

constexpr const char* kVariable = "GODWIT_FUZZ_TARGET";  // for the processes that libFuzzer starts

void choose(const std::string& name) {
  for (const godwit::fuzz::Target& target : godwit::fuzz::all_targets())
    if (target.name == name) chosen = target;
  if (chosen) return;
  std::cerr << "fuzz: no target '" << name << "'; --list prints the targets\n";
  std::exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// Removes --target=NAME from the arguments.
int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr const char* kFlag = "--target=";
  int kept = 0;
  for (int i = 0; i < *argc; ++i) {
    char* word = (*argv)[i];
    if (std::strcmp(word, "--list") == 0) {
      for (const godwit::fuzz::Target& target : godwit::fuzz::all_targets()) std::cout << target.name << '\n';
      std::exit(0);
    }
    if (std::strncmp(word, kFlag, std::strlen(kFlag)) == 0) ::setenv(kVariable, word + std::strlen(kFlag), 1);
    else (*argv)[kept++] = word;
  }
  *argc = kept;
  const char* name = std::getenv(kVariable);
  choose(name ? name : "");
  godwit::fuzz::run(*chosen, {});  // builds tables, whose time must not count as the time of an input
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  godwit::fuzz::run(*chosen, {data, size});
  return 0;
}
