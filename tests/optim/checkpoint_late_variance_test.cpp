// Second moments of values whose first gradient comes after the warm-up: before and after a resume.
#include <gtest/gtest.h>

#include "optim/checkpoint.h"
#include "tests/optim/methods.h"
#include "tests/support.h"

namespace godwit {
namespace late_variance_test {

// The gradient of w; element 3 of 7 has one only in step `rare`, on rank 1.
Var rare_gradient_loss(const Var& w, int rank, int64_t step, int64_t rare) {
  return Var::result(Tensor::full({1}, 1), {w}, [=, dw = w.gradient()](const Tensor& dy) {
    const Tensor there = dw.target(), g(there.shape(), there.dtype(), kCpu);
    for (int64_t i = 0; i < g.numel(); ++i) {
      const bool none = i % 7 == 3 && (step != rare || rank != 1);
      g.data<float>()[i] =
          none ? 0 : static_cast<float>(dy.item() * (0.1 + 0.01 * static_cast<double>((i + step) % 5)));
    }
    there.copy_from(g);
    dw.add(there);
  });
}

// A run stops between the only gradient of some values and the refresh that gives them their second moment, in the step
// after the checkpoint. It continues in new objects, or in the objects of the run.
TEST(Checkpoint, KeepsSecondMomentsUntilTheirRefresh) {
  for (const auto& row : {std::pair{"one_bit_adam", 4}, {"one_bit_lamb", 4}, {"zero_one_adam", 5}}) {
    const char* name = row.first;
    const int saved = row.second;
    SCOPED_TRACE(name);
    const TempFolder folder;
    struct Result {
      std::vector<float> x;
      test::Remains state;
      bool operator==(const Result&) const = default;
    };
    std::vector<Result> whole(2), resumed(2), returned(2);
    const auto train = [&](int64_t first, bool returns, std::vector<Result>& results) {
      run_local({2, 1}, [&](Communicator& comm) {
        const Var w(Tensor::full({70}, 1), true);
        DataParallelOptions options;
        options.optimizer = name;
        options.optimizer.set("warmup_steps", 2).set("weight_decay", 0);
        if (options.optimizer.has("warmup")) options.optimizer.set("warmup", "fixed");
        else options.optimizer.set("intervals", "fixed").set("max_interval", 2);
        DataParallel replica({{"w", w}}, comm, options);
        CheckpointExtras extras;
        bool again = returns, moved = false;
        if (first > 1) load_checkpoint(folder / "step", replica, comm, extras);
        for (int64_t t = first; t <= 9; ++t) {
          replica.begin_step(1e-2);
          replica.backward(rare_gradient_loss(w, comm.rank, t, saved));
          replica.finish_step();
          moved = moved || w.value().item(3) != 1;
          if (first == 1 && !returns && t == saved) save_checkpoint(folder / "step", replica, comm);
          if (t == saved) {
            EXPECT_FALSE(moved);
          }
          if (t < 9 || !again) continue;
          load_checkpoint(folder / "step", replica, comm, extras);
          t = saved, again = false;
        }
        EXPECT_TRUE(moved) << "the value trains";
        results[static_cast<size_t>(comm.rank)] = {w.value().to_vector<float>(),
                                                   test::hashes_of(replica.optimizer().state())};
      });
    };
    train(1, false, whole);
    train(saved + 1, false, resumed);
    EXPECT_EQ(resumed, whole);
    train(1, true, returned);
    EXPECT_EQ(returned, whole);
  }
}

// Elements without gradients have v = 0 and, because a sign is never 0, errors. These are no second moments after a
// resume from which v is frozen earlier, or from which v is refreshed.
TEST(Checkpoint, ErrorsAreNoSecondMomentsAfterAnotherFreeze) {
  const auto change = [](OptimizerConfig& optimizer, bool resumed) {
    optimizer.set("weight_decay", 0).set("warmup_steps", 2);
    if (optimizer.has("warmup")) optimizer.set("warmup", "fixed").set("refresh_variance", resumed);
    else optimizer.set("intervals", "fixed").set("max_interval", 2).set("warmup_steps", resumed ? 2 : 12);
  };
  for (const char* name : {"one_bit_adam", "one_bit_lamb", "zero_one_adam"})
    for (const int64_t saved : {4, 5, 6, 7}) {
      SCOPED_TRACE(name);
      const TempFolder folder;
      double largest = 0;
      const auto train = [&](int64_t first, int64_t last) {
        run_local({2, 1}, [&](Communicator& comm) {
          const Var w(Tensor::full({70}, 1), true);
          DataParallelOptions options;
          options.optimizer = name;
          change(options.optimizer, first > 1);
          DataParallel replica({{"w", w}}, comm, options);
          CheckpointExtras extras;
          if (first > 1) load_checkpoint(folder / "step", replica, comm, extras);
          for (int64_t t = first; t <= last; ++t) {
            replica.begin_step(1e-2);
            replica.backward(rare_gradient_loss(w, comm.rank, t, 0));
            replica.finish_step();
          }
          if (first == 1) save_checkpoint(folder / "step", replica, comm);
          for (const StateTensor& part : replica.optimizer().state())
            for (int64_t i = 3; i < 70; i += 7) {
              if (part.name == "v") {
                EXPECT_EQ(part.values.item(i), 0) << i << ", saved after step " << saved;
              }
              if (part.name == "e" && first == 1 && comm.rank == 0) largest = std::max(largest, part.values.item(i));
            }
        });
      };
      train(1, saved);
      if (saved % 2 == 0) {
        EXPECT_GT(largest, 0);
      }
      train(saved + 1, 20);
    }
}

}  // namespace late_variance_test
}  // namespace godwit
