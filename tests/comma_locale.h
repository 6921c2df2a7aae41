// Sets a locale with a decimal comma, which a program that embeds Godwit may have.
#pragma once
#include <clocale>
#include <cstdlib>
#include <string>

#include "tests/support.h"

namespace godwit {

class CommaLocale {
 public:
  CommaLocale() {
    const std::string text =
        "LC_NUMERIC\ndecimal_point \"<U002C>\"\nthousands_sep \"<U002E>\"\ngrouping 3;3\nEND LC_NUMERIC\n";
    write(folder_ / "source", Bytes(text.begin(), text.end()));
    // localedef exits with 1, because the other categories are missing.
    const std::string define =
        "localedef -c -i '" + (folder_ / "source") + "' '" + (folder_ / "comma") + "' >/dev/null 2>&1";
    (void)!std::system(define.c_str());
    setenv("LOCPATH", folder_.str().c_str(), 1);
    set_ = std::setlocale(LC_NUMERIC, "comma") != nullptr;
    unsetenv("LOCPATH");
  }
  ~CommaLocale() { std::setlocale(LC_NUMERIC, "C"); }
  bool is_set() const { return set_; }  // false if the system has no localedef or character maps

 private:
  TempFolder folder_;
  bool set_ = false;
};

}  // namespace godwit
