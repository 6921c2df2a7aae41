// Runs a test on every instruction set that this build contains and this machine supports.
#pragma once
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <string>

namespace godwit {

class OnEveryTarget : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { choose(GetParam()); }
  void TearDown() override { choose(0); }

 private:
  static void choose(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }
};

}  // namespace godwit

//   class SignBitsOn : public OnEveryTarget {};
//   GODWIT_EVERY_TARGET(SignBitsOn);
#define GODWIT_EVERY_TARGET(Suite)                                                                \
  INSTANTIATE_TEST_SUITE_P(Sets, Suite, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), \
                           [](const auto& set) { return std::string(hwy::TargetName(set.param)); })
