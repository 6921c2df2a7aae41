#include "apps/train/memory_limit.h"

#include <gtest/gtest.h>

#include "apps/image/image_config.h"
#include "engine/check.h"

namespace godwit::apps {
namespace memory_limit_test {

// Bytes of 1,000 parameters on 2 × 4 workers of one process, found as the smallest memory that is not refused.
int64_t needed(Sharding sharding) {
  ImageConfig config;
  config.exchange.sharding = sharding;
  Communicator comm;
  comm.topology = {2, 4};
  for (int64_t bytes = 0; bytes < 100'000; bytes += 500) {
    try {
      check_host_memory(config, comm, "model x", 1000, bytes);
      return bytes;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("model x: 1000 parameters with their gradients take "),
                std::string::npos);
    }
  }
  return -1;
}

TEST(HostMemory, CountsOnlyTheShards) {
  EXPECT_EQ(needed(Sharding::none), 8 * 8000);
  EXPECT_EQ(needed(Sharding::zero1), 8 * 8000);
  EXPECT_EQ(needed(Sharding::zero2), 8 * 4500);
  EXPECT_EQ(needed(Sharding::zero3), 8 * 1000);
  EXPECT_EQ(needed(Sharding::hybrid), 8 * 2000);
}

TEST(HostMemory, GenerationNeedsOnlyTheParameters) {
  EXPECT_NO_THROW(check_host_memory_of_parameters("x", 1000, 4000));
  try {
    check_host_memory_of_parameters("x", 1000, 3999);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("x: 1000 parameters take 4.00 kB, and this machine has "),
              std::string::npos)
        << error.what();
  }
}

TEST(HostMemory, HasAPlausibleSize) {
  EXPECT_GT(host_memory(), 100 << 20);
  EXPECT_LT(host_memory(), int64_t{1} << 50);
}

}  // namespace memory_limit_test
}  // namespace godwit::apps
