#include "engine/context.h"

#include <gtest/gtest.h>

#include <thread>

#include "engine/tensor.h"
#ifdef _OPENMP
#include <omp.h>
#endif

namespace godwit {
namespace context_test {

TEST(Context, GuardsNestAndRestore) {
  const int outer_rank = context().rank, outer_threads = context().threads;
  const auto outer_pool = context().pool;
  {
    ContextGuard a({.rank = 3, .threads = 1});
    EXPECT_EQ(context().rank, 3);
    EXPECT_NE(context().pool, outer_pool);
    {
      ContextGuard b({.rank = 4, .threads = 0});
      EXPECT_EQ(context().rank, 4);
      EXPECT_EQ(context().threads, 1) << "at least one";
    }
    EXPECT_EQ(context().rank, 3);
  }
  EXPECT_EQ(context().rank, outer_rank);
  EXPECT_EQ(context().threads, outer_threads);
  EXPECT_EQ(context().pool, outer_pool);
}

TEST(Context, EachThreadHasASeparateContext) {
  ContextGuard guard({.rank = 5});
  NoGrad no_grad;
  Context other;
  std::thread([&] { other = context(); }).join();
  EXPECT_EQ(other.rank, 0);
  EXPECT_TRUE(other.grad_enabled);
  EXPECT_NE(other.pool, context().pool);
}

TEST(Context, NoGradNests) {
  EXPECT_TRUE(context().grad_enabled);
  {
    NoGrad a;
    { NoGrad b; }
    EXPECT_FALSE(context().grad_enabled);
  }
  EXPECT_TRUE(context().grad_enabled);
}

TEST(Context, TensorsAreAllocatedFromItsPool) {
  ContextGuard guard({});
  Tensor x({10});
  EXPECT_EQ(context().pool->stats().bytes_in_use, 40);
}

#ifdef _OPENMP
TEST(Context, SetsTheOpenMpThreadCount) {
  ContextGuard outer({.threads = 2});
  EXPECT_EQ(omp_get_max_threads(), 2);
  {
    ContextGuard inner({.threads = 1});
    EXPECT_EQ(omp_get_max_threads(), 1);
  }
  EXPECT_EQ(omp_get_max_threads(), 2);
}
#else
TEST(Context, HasOneThreadWithoutOpenMp) {
  ContextGuard guard({.threads = 4});
  EXPECT_EQ(context().threads, 1);
}
#endif

}  // namespace context_test
}  // namespace godwit
