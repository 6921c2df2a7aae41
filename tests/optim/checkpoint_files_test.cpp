#include "optim/checkpoint_files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "comm/transport/local.h"
#include "optim/bucket_size_options.h"
#include "tests/comma_locale.h"

namespace godwit::checkpoint {
namespace checkpoint_files_test {

TEST(CheckpointFiles, NumbersKeepTheirBits) {
  using Limits = std::numeric_limits<double>;
  for (const double value :
       {0.0, -0.0, 1.0, 3.0, -0.1, 1e300, Limits::denorm_min(), Limits::max(), Limits::infinity()}) {
    const double again = exact_number(exact_text(value), "file");
    EXPECT_EQ(again, value);
    EXPECT_EQ(std::signbit(again), std::signbit(value));
  }
  EXPECT_EQ(exact_text(3), "0x1.8p+1");
  EXPECT_EQ(exact_number("123.5", "file"), 123.5);
  for (const char* text : {"", "-", "0x", "0x1,8p+1", "1 2", "one"})
    EXPECT_EQ(error_of([&] { exact_number(text, "file"); }), "file: '" + std::string(text) + "' is not a number");
}

TEST(CheckpointFiles, NumbersDoNotDependOnTheLocale) {
  const CommaLocale locale;
  if (!locale.is_set()) GTEST_SKIP() << "this system cannot define a locale";
  EXPECT_EQ(exact_text(3), "0x1.8p+1");
  EXPECT_EQ(exact_number("0x1.8p+1", "file"), 3);
  EXPECT_EQ((BucketSizeOptions{.mib = "0.5"}.sizes().bytes), 512 << 10);
}

TEST(CheckpointFiles, AnErrorWithoutTextIsAnError) {
  run_local({2, 1}, [](Communicator& comm) {
    EXPECT_NE(error_of([&] {
                on_all(*comm.world, [&] {
                  if (comm.rank == 1) throw std::runtime_error("");
                });
              }).find("rank 1: unknown error"),
              std::string::npos);
  });
}

}  // namespace checkpoint_files_test
}  // namespace godwit::checkpoint
