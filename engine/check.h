// Errors: what failed, the rule, the actual values and a hint, in one line; check() and fail() note where.
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace godwit {

// Thrown for everything a user, a file or a peer can cause. what() is the message, where() the source line.
class Error : public std::runtime_error {
 public:
  Error(const std::string& text, const char* file, int line)
      : std::runtime_error(text), where_(std::string(file) + ":" + std::to_string(line)) {}
  const std::string& where() const { return where_; }
  Error with_text(const std::string& text) const { return Error(text, where_); }  // the same place, more to say

 private:
  Error(const std::string& text, std::string where) : std::runtime_error(text), where_(std::move(where)) {}

  std::string where_;
};

namespace detail {
// Takes the place of the first argument, so that the caller's file and line come along.
template <class T>
struct Located {
  T value;
  const char* file;
  int line;
  template <class U>
  Located(U&& v, const char* f = __builtin_FILE(), int l = __builtin_LINE())
      : value(static_cast<U&&>(v)), file(f), line(l) {}
};

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}
}  // namespace detail

// fail("conv2d: weight expects ", c, " input channels") throws an Error made of its parts.
template <class... Parts>
[[noreturn]] void fail(detail::Located<std::string> first, const Parts&... parts) {
  throw Error(detail::concat(first.value, parts...), first.file, first.line);
}

// check(condition, parts…) throws unless the condition holds; the parts are only put together then.
template <class... Parts>
void check(detail::Located<bool> condition, const Parts&... parts) {
  if (!condition.value) [[unlikely]]
    throw Error(detail::concat(parts...), condition.file, condition.line);
}

}  // namespace godwit
