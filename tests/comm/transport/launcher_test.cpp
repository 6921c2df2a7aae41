#include "comm/transport/launcher.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support.h"

namespace godwit {
namespace launcher_test {

class LauncherTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) unsetenv(name);
  }
  void TearDown() override { SetUp(); }
  static void set(const char* name, const char* value) { setenv(name, value, 1); }

  static constexpr const char* kNames[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
                                           "SLURM_PROCID",         "SLURM_STEP_NUM_TASKS"};
};

TEST_F(LauncherTest, IsReadFromTheEnvironment) {
  EXPECT_FALSE(under_launcher());
  set("OMPI_COMM_WORLD_RANK", "3");
  EXPECT_FALSE(under_launcher()) << "the world size is missing";
  set("OMPI_COMM_WORLD_SIZE", "8");
  ASSERT_TRUE(under_launcher());
  EXPECT_EQ(launcher()->name, "mpirun");
  EXPECT_EQ(launcher()->rank, 3);
  EXPECT_EQ(launcher()->world, 8);
  SetUp();
  set("PMI_RANK", "0");
  set("PMI_SIZE", "2");
  EXPECT_EQ(launcher()->world, 2);
}

TEST_F(LauncherTest, ASlurmBatchScriptOrShellIsNoLauncher) {
  set("SLURM_PROCID", "0");
  EXPECT_FALSE(under_launcher());
  set("SLURM_STEP_NUM_TASKS", "1");
  EXPECT_FALSE(under_launcher());
  set("SLURM_STEP_NUM_TASKS", "4");
  EXPECT_EQ(launcher()->name, "srun");
}

TEST_F(LauncherTest, RefusesInvalidValues) {
  set("OMPI_COMM_WORLD_SIZE", "8");
  for (const char* rank : {"", "x", "-1", "8", "1x"}) {
    set("OMPI_COMM_WORLD_RANK", rank);
    EXPECT_THROW(launcher(), Error) << rank;
  }
}

void expect(const Topology& topology, int nodes, int workers) {
  EXPECT_EQ(topology.nodes, nodes);
  EXPECT_EQ(topology.workers_per_node, workers);
}

TEST(FitTopology, MissingNumbersFollowFromTheWorldSize) {
  expect(fit_topology({4, 0}, 8), 4, 2);
  expect(fit_topology({0, 4}, 8), 2, 4);
  expect(fit_topology({2, 4}, 8), 2, 4);
  expect(fit_topology({0, 0}, 8), 0, 0);
  expect(fit_topology({1, 0}, 1), 1, 1);
}

TEST(FitTopology, NamesContradictions) {
  const auto text = [](const Topology& given) { return error_of([&] { fit_topology(given, 8); }); };
  EXPECT_NE(text({3, 2}).find("the launcher started 8 ranks, but --nodes 3 × --workers-per-node 2 are 6"),
            std::string::npos)
      << text({3, 2});
  EXPECT_NE(text({3, 0}).find("--nodes 3"), std::string::npos);
  EXPECT_NE(text({0, 5}).find("--workers-per-node 5"), std::string::npos);
  EXPECT_NE(text({65536, 65536}).find("4294967296"), std::string::npos) << text({65536, 65536});
}

TEST(TopologyOfHosts, EachHostIsOneNode) {
  expect(topology_of_hosts({"a"}), 1, 1);
  expect(topology_of_hosts({"b", "b", "a", "a"}), 2, 2);
  EXPECT_NE(error_of([] { topology_of_hosts({"a", "a", "b"}); }).find("a has 2, b has 1"), std::string::npos);
  EXPECT_NE(error_of([] { topology_of_hosts({"a", "a", "\x1b[1m"}); }).find("\\x1b[1m has 1"), std::string::npos);
  const std::string mixed = error_of([] { topology_of_hosts({"a", "b", "a", "b"}); });
  EXPECT_NE(mixed.find("node 0 spans hosts: rank 0 runs on a, rank 1 on b"), std::string::npos) << mixed;
}

TEST(TopologyOfHosts, FindsNodesThatSpanHosts) {
  EXPECT_EQ(spanning_node({2, 2}, {"a", "a", "a", "a"}), "");
  EXPECT_NE(spanning_node({1, 4}, {"a", "a", "a", "b"}), "");
}

}  // namespace launcher_test
}  // namespace godwit
