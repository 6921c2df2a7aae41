// If the system refuses to start the thread that writes a checkpoint, all ranks get a CheckpointFailed and can go on.
// The thread that reserves memory for checkpoints is optional.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>

#include "comm/transport/local.h"
#include "optim/checkpoint.h"
#include "tests/failing_threads.h"
#include "tests/support.h"

namespace godwit {
namespace checkpoint_thread_test {

TEST(CheckpointThread, FailsOnAllRanksIfOneCannotStart) {
  if (!kThreadsCanFail) GTEST_SKIP() << "the sanitizer replaces pthread_create()";
  const TempFolder folder;
  for (const int allowed : {0, 1}) {
    std::array<std::string, 2> errors;
    run_local(
        {2, 1},
        [&](Communicator& comm) {
          const Var w(Tensor::full({70}, 1), true);
          DataParallelOptions options;
          options.optimizer = "adamw";
          DataParallel replica({{"w", w}}, comm, options);
          comm.world->barrier("test");
          {
            const FailingThreads failing(allowed);
            comm.world->barrier("test");
            if (allowed == 0) {
              EXPECT_FALSE(reserve_checkpoint_memory(replica, comm, {}).joinable());
            }
            try {
              begin_checkpoint(folder / "step-1", replica, comm);
            } catch (const CheckpointFailed& error) {
              errors[static_cast<size_t>(comm.rank)] = error.what();
            }
            comm.world->barrier("test");
          }
          comm.world->barrier("test");
          if (allowed == 1) save_checkpoint(folder / "step-1", replica, comm);
        },
        {.threads_per_rank = 1});
    for (const std::string& error : errors)
      EXPECT_THAT(error, testing::HasSubstr("cannot start the thread that writes a checkpoint: Resource temporarily"));
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "step-1/manifest.json"));
}

}  // namespace checkpoint_thread_test
}  // namespace godwit
