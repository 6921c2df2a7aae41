#include "engine/process_limits.h"

#include <gtest/gtest.h>

#include "tests/support.h"

namespace godwit {
namespace process_limits_test {

class ControlGroups : public testing::Test {
 protected:
  void file(const std::string& name, const std::string& text) { write(root_ / name, Bytes(text.begin(), text.end())); }
  ControlGroupLimits limits() const { return control_group_limits(root_.str()); }

  TempFolder root_;
};

TEST_F(ControlGroups, HaveNoLimitsWithoutTheirFiles) {
  EXPECT_EQ(limits().cpus, std::nullopt);
  EXPECT_EQ(limits().memory, std::nullopt);
}

TEST_F(ControlGroups, OfVersion2HaveTheLowestLimitsOfTheirParents) {
  file("proc/self/cgroup", "0::/system.slice/job/step\n");
  file("sys/fs/cgroup/system.slice/cpu.max", "400000 100000\n");
  file("sys/fs/cgroup/system.slice/memory.max", "max\n");
  file("sys/fs/cgroup/system.slice/job/cpu.max", "75000 50000\n");
  file("sys/fs/cgroup/system.slice/job/memory.max", "1073741824\n");
  file("sys/fs/cgroup/system.slice/job/step/cpu.max", "max 100000\n");
  file("sys/fs/cgroup/system.slice/job/step/memory.max", "2147483648\n");
  file("sys/fs/cgroup/system.slice/other/cpu.max", "1000 100000\n");
  EXPECT_EQ(limits().cpus, 1.5);
  EXPECT_EQ(limits().memory, 1 << 30);
}

TEST_F(ControlGroups, OfAContainerAreAtTheRoot) {
  file("sys/fs/cgroup/cpu.max", "800000 100000\n");
  file("sys/fs/cgroup/memory.max", "4096\n");
  EXPECT_EQ(limits().cpus, 8) << "without /proc";
  for (const char* groups : {"0::/\n", "0::/docker/1234\n", "0::/../..\n", "malformed\n0:\n"}) {
    file("proc/self/cgroup", groups);
    EXPECT_EQ(limits().cpus, 8) << groups;
    EXPECT_EQ(limits().memory, 4096) << groups;
  }
}

TEST_F(ControlGroups, OfVersion1HaveSeparateFolders) {
  file("proc/self/cgroup", "9:name=systemd:/user\n4:memory:/job\n3:cpuset:/\n1:cpu,cpuacct:/batch/job\n0::/\n");
  file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  file("sys/fs/cgroup/cpu/batch/job/cpu.cfs_quota_us", "50000\n");
  file("sys/fs/cgroup/cpu/batch/job/cpu.cfs_period_us", "100000\n");
  file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(limits().cpus, 0.5);
  EXPECT_EQ(limits().memory, std::nullopt);
  file("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "536870912\n");
  EXPECT_EQ(limits().memory, 512 << 20);
}

}  // namespace process_limits_test
}  // namespace godwit
