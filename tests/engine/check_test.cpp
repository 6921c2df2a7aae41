#include "engine/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

namespace godwit {
namespace check_test {

TEST(Check, ThrowsTheMessagePartsAndTheCallSite) {
  int line = 0;
  try {
    line = __LINE__ + 1;
    check(1 + 1 == 3, "conv2d: ", 64, " channels, ", 0.5, " and ", std::string("text"));
    FAIL() << "check(false) returned";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "conv2d: 64 channels, 0.5 and text");
    EXPECT_THAT(error.where(), testing::EndsWith("check_test.cpp:" + std::to_string(line)));
  }
  try {
    line = __LINE__ + 1;
    fail("alone ", 1);
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "alone 1");
    EXPECT_THAT(error.where(), testing::EndsWith("check_test.cpp:" + std::to_string(line)));
  }
}

TEST(Check, PrintsNanWithoutASign) {
  for (const double nan : {std::nan(""), -std::nan("")})
    EXPECT_EQ(detail::concat(nan, " ", static_cast<float>(nan), " ", -0.5), "nan nan -0.5");
}

struct Counted {
  int* printed;
};
std::ostream& operator<<(std::ostream& out, const Counted& counted) {
  ++*counted.printed;
  return out;
}

TEST(Check, FormatsTheMessageOnlyOnFailure) {
  int printed = 0;
  check(true, Counted{&printed});
  check(std::make_unique<int>(1) != nullptr, Counted{&printed});
  EXPECT_EQ(printed, 0);
  EXPECT_THROW(check(false, Counted{&printed}), Error);
  EXPECT_EQ(printed, 1);
}

TEST(Check, ErrorIsARuntimeError) { EXPECT_THROW(fail("x"), std::runtime_error); }

}  // namespace check_test
}  // namespace godwit
