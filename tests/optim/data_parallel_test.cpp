#include "optim/data_parallel.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/transport/local.h"
#include "engine/context.h"
#include "optim/sgd.h"
#include "tests/support.h"

namespace godwit {
namespace {

// loss = Σ w·x, so the gradient of w is x.
Var dot(const Var& w, double x) {
  double sum = 0;
  for (int64_t i = 0; i < w.value().numel(); ++i) sum += w.value().item(i) * x;
  return Var::result(Tensor::full({1}, sum), {w}, [dw = w.gradient(), x](const Tensor& dy) {
    const Tensor g = dw.target();
    g.fill(x * dy.item());
    dw.add(g);
  });
}

OptimizerConfig plain_sgd(double lr) { return Sgd::Options{.lr = lr, .weight_decay = 0}; }

TEST(DataParallel, StepsAlongTheMeanGradient) {
  run_local({2, 2}, [](Communicator& comm) {
    const Var w(Tensor::full({5}, 1), true);
    int updates = 0;
    DataParallel replica({{"w", w}}, comm,
                         {.optimizer = plain_sgd(0.5), .updated = [&](const Bucket& bucket, const StepInfo& step) {
                            EXPECT_EQ(bucket.index, 0);
                            EXPECT_EQ(step.step, ++updates);
                          }});
    replica.step(dot(w, comm.rank));  // mean of 0, 1, 2, 3
    EXPECT_EQ(w.value().item(4), 1 - 0.5 * 1.5);
    replica.step(dot(w, comm.rank), 1);
    EXPECT_EQ(w.value().item(4), 0.25 - 1.5);
    replica.begin_step(0.25, 2);
    for (const double x : {4.0, 8.0}) replica.backward(dot(w, x));
    replica.finish_step();
    EXPECT_EQ(w.value().item(4), -1.25 - 0.25 * 6);
    EXPECT_EQ(replica.steps(), 3);
    EXPECT_EQ(updates, 3);
    replica.check_replicas();
  });
}

// Pitfall 35: work concurrent with backward uses the rank's thread count, not all threads of the machine.
TEST(DataParallel, Pitfall35TheExchangeUsesTheThreadCountOfItsRank) {
  class Asks : public Exchange {
   public:
    explicit Asks(std::vector<int>& threads) : threads_(threads) {}
    void mean(Bucket&, Communicator&, int64_t) override { threads_.push_back(context().threads); }

   private:
    std::vector<int>& threads_;
  };
  const auto threads_of = [](int ranks, int given) {
    std::vector<int> asked;
    run_local({ranks, 1},
              [&](Communicator& comm) {
                const Var w(Tensor::full({5}, 1), true);
                std::vector<int> own;
                DataParallelOptions options{.optimizer = plain_sgd(0.5)};
                options.make_exchange = [&](const auto&...) { return std::make_unique<Asks>(own); };
                DataParallel({{"w", w}}, comm, options).step(dot(w, 1));
                if (comm.rank == 0) asked = own;
              },
              {.threads_per_rank = given});
    return asked;
  };
  EXPECT_EQ(threads_of(2, 1), std::vector<int>{1});
  EXPECT_EQ(threads_of(hardware_threads(), 0), std::vector<int>{1});
#ifdef _OPENMP  // without OpenMP a rank has one thread
  EXPECT_EQ(threads_of(1, 0), std::vector<int>{hardware_threads()});
  EXPECT_EQ(threads_of(2, 3), std::vector<int>{3});
#endif
}

// waiting = the part of the exchange after the end of backward + idle.
TEST(DataParallel, WaitingIsTheExchangeAfterBackwardPlusIdleTime) {
  class Slow : public Exchange {
   public:
    void mean(Bucket&, Communicator&, int64_t) override { std::this_thread::sleep_for(std::chrono::milliseconds(60)); }
  };
  run_local({1, 1}, [](Communicator& comm) {
    const Var w(Tensor::full({5}, 1), true);
    DataParallelOptions options{.optimizer = plain_sgd(0.5)};
    options.make_exchange = [](const auto&...) { return std::make_unique<Slow>(); };
    DataParallel replica({{"w", w}}, comm, options);
    const auto step = [&](std::chrono::milliseconds after_backward) {
      replica.begin_step(0.5);
      replica.backward(dot(w, 1));  // starts the exchange
      std::this_thread::sleep_for(after_backward);
      replica.finish_step();
      const StepTimes& t = replica.times();
      EXPECT_GE(t.compression, 0.06);
      EXPECT_GE(t.idle, 0);
      EXPECT_LE(t.waiting - t.idle, t.compression + t.communication + t.update + 1e-9);
      return t;
    };
    const StepTimes exposed = step(std::chrono::milliseconds(0));
    EXPECT_GT(exposed.waiting - exposed.idle, 0.03) << "the computing thread waits for the exchange";
    const StepTimes hidden = step(std::chrono::milliseconds(500));
    EXPECT_LT(hidden.waiting - hidden.idle, 0.03) << "the exchange has ended before finish_step()";
  });
}

// Buckets are padded to Birder's alignment regardless of the caller's options.
TEST(DataParallel, TrainsWithBirderByDefault) {
  run_local({3, 2}, [](Communicator& comm) {
    const Var w(Tensor::full({50}, 1), true);
    DataParallelOptions options;
    options.buckets.alignment = 1;
    DataParallel replica({{"w", w}}, comm, options);
    for (int step = 0; step < 20; ++step) replica.step(dot(w, 1));
    replica.check_replicas();
    EXPECT_LT(w.value().item(7), 1 - 10 * options.optimizer.number("lr"))
        << "with constant gradients nearly all signs agree";
  });
}

TEST(DataParallel, NamesTheRanksThatDiffer) {
  const auto error_when = [](int64_t extent, double value) {
    return error_of([&] {
      run_local({3, 1}, [&](Communicator& comm) {
        const bool odd = comm.rank == 1;
        const Var w(Tensor::full({odd ? extent : 4}, odd ? value : 1), true);
        DataParallel(std::vector<Parameter>{{"w", w}}, comm);
      });
    });
  };
  EXPECT_NE(error_when(5, 1).find("the model's parameters"), std::string::npos);
  EXPECT_NE(error_when(4, 2).find("ranks disagree on the initial weights: rank 1 differs from the rest"),
            std::string::npos);
}

}  // namespace
}  // namespace godwit
