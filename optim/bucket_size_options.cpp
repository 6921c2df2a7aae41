#include "optim/bucket_size_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/excerpt.h"

namespace godwit {
namespace {

constexpr Range kMibRange{1.0 / 1024, 1 << 20};

// 0 if the text is not a number. std::stod() would read the text in the locale of the program.
double mib_of(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

void check_mib(const std::string& text, const std::string& subject) {
  const double number = mib_of(text);
  check(text == "auto" || (number >= kMibRange.min && number <= kMibRange.max), subject, " expects auto or a number",
        range_text(kMibRange), ", got '", excerpt(text), "'");
}

}  // namespace

void BucketSizeOptions::describe(OptionList& list) {
  list.add("first_mib", first_mib, "size of the first bucket, MiB", kMibRange);
  list.add("mib", mib,
           "size of the other buckets, MiB; auto: the run measures its exchange and its backward pass, and picks the "
           "size with the shortest predicted step")
      .or_number()
      .check_text = check_mib;
}

BucketOptions BucketSizeOptions::sizes() const {
  const auto bytes = [](double size) { return std::max<int64_t>(1, std::llround(size * (1 << 20))); };
  BucketOptions options;
  options.first_bytes = bytes(first_mib);
  options.bytes = bytes(mib_of(mib));
  return options;
}

}  // namespace godwit
