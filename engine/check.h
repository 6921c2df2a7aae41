// Errors: check() and fail() throw an Error with a one-line message and the source location. A message states the
// failed operation, the rule, the actual values and a hint.
#pragma once
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace godwit {

// Thrown for every error that a user, a file or a peer can cause. what() returns the message. where() returns the
// source location.
class Error : public std::runtime_error {
 public:
  Error(const std::string& text, const char* file, int line);  // message and source location
  const std::string& where() const { return where_; }          // "file:line"
  Error with_text(const std::string& text) const;              // same location, longer message

 private:
  Error(const std::string& text, std::string where);

  std::string where_;
};

namespace detail {
// Wraps the first argument of check() and fail() to capture the caller's file and line.
template <class T>
struct Located {
  T value;
  const char* file;
  int line;
  template <class U>
  Located(U&& v, const char* f = __builtin_FILE(), int l = __builtin_LINE())
      : value(static_cast<U&&>(v)), file(f), line(l) {}
};

// Throws an Error. Not inline, like the constructors of Error: inline copies would increase the compile time of every
// source file.
[[noreturn]] void raise(const std::string& text, const char* file, int line);

// `part`, but a NaN without its sign: "nan" instead of "-nan".
template <class T>
decltype(auto) unsigned_nan(const T& part) {
  if constexpr (std::is_floating_point_v<T>) return part == part ? part : std::numeric_limits<T>::quiet_NaN();
  else return (part);
}

// The attribute `cold` optimizes for size, which shortens compilation.
template <class... Parts>
[[gnu::cold]] std::string concat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << unsigned_nan(parts));
  return text.str();
}
}  // namespace detail

// Throws an Error whose message concatenates the arguments: fail("conv2d: weight expects ", c, " input channels").
template <class... Parts>
[[noreturn]] void fail(detail::Located<std::string> first, const Parts&... parts) {
  detail::raise(detail::concat(first.value, parts...), first.file, first.line);
}

// Throws an Error if the condition is false. The message is built only for a false condition.
template <class... Parts>
void check(detail::Located<bool> condition, const Parts&... parts) {
  if (!condition.value) [[unlikely]]
    detail::raise(detail::concat(parts...), condition.file, condition.line);
}

// Returns f(). If f throws an Error, its message gets the prefix "place: ".
template <class F>
decltype(auto) with_place(const std::string& place, const F& f) {
  try {
    return f();
  } catch (const Error& error) {
    throw error.with_text(place + ": " + error.what());
  }
}

}  // namespace godwit
