#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "comm/consistency.h"
#include "comm/exchange/method.h"
#include "comm/transport/local.h"
#include "tests/comm/table.h"
#include "tests/support.h"

namespace godwit {
namespace exchange_test {

using test::random_row;
using test::rank_order_sum;

Buckets make_buckets(int64_t n, const Topology& topology, DType dtype = DType::f32) {
  return Buckets({{"w", Var(Tensor::zeros({n}, dtype), true), true}}, {.alignment = 32 * topology.world()});
}

template <class T>
void fill_grad(Bucket& bucket, int rank) {
  const std::vector<T> row = random_row<T>(21, rank, bucket.numel);
  std::copy(row.begin(), row.end(), bucket.grad.data<T>());
}

// The config of dense or hierarchical with this wire.
ExchangeConfig with_wire(const std::string& name, const std::string& wire) {
  ExchangeConfig config = name;
  config.set("wire", wire);
  return config;
}

template <class T>
std::vector<T> exchanged(const std::string& name, const Topology& topology, int64_t n,
                         const std::string& wire = "f32") {
  std::vector<T> result;
  std::mutex mutex;
  run_local(topology, [&](Communicator& comm) {
    Buckets buckets = make_buckets(n, topology, dtype_of<T>);
    fill_grad<T>(buckets[0], comm.rank);
    make_exchange(with_wire(name, wire), buckets, comm, 1)->mean(buckets[0], comm, 1);
    for (int64_t i = n; i < buckets[0].padded_numel(); ++i) EXPECT_EQ(buckets[0].grad.item(i), 0) << "padding not 0";
    const std::vector<T> own = buckets[0].grad.range(0, n).template to_vector<T>();
    std::lock_guard lock(mutex);
    if (result.empty()) result = own;
    EXPECT_EQ(own, result) << "ranks must have equal results";
  });
  return result;
}

const std::string kExact[] = {"dense", "hierarchical"};
const Topology kTopologies[] = {{1, 1}, {3, 1}, {1, 4}, {2, 2}, {2, 3}, {3, 2}, {4, 2}};

TEST(Exchange, DenseIsTheRankOrderMeanBitForBit) {
  for (const Topology& topology : kTopologies)
    for (int64_t n : {0, 1, 33, 5000})
      EXPECT_EQ(exchanged<float>("dense", topology, n), rank_order_sum<float>(21, topology.world(), n, true));
}

// Recursive summation of W terms has an error of at most (W − 1)·2⁻²⁴·Σ|x|, plus half a unit for the division (Higham,
// section 4.2).
TEST(Exchange, EqualsTheExactMeanWithinRounding) {
  for (const Topology& topology : kTopologies)
    for (const std::string& name : kExact)
      for (int64_t n : {1, 33, 5000}) {
        const std::vector<float> mean = exchanged<float>(name, topology, n);
        const int world = topology.world();
        std::vector<std::vector<float>> rows;
        for (int rank = 0; rank < world; ++rank) rows.push_back(random_row<float>(21, rank, n));
        for (int64_t i = 0; i < n; ++i) {
          double exact = 0, size = 0;
          for (int rank = 0; rank < world; ++rank) {
            const double x = rows[static_cast<size_t>(rank)][static_cast<size_t>(i)];
            exact += x;
            size += std::abs(x);
          }
          EXPECT_NEAR(mean[static_cast<size_t>(i)], exact / world, world * 0x1p-24 * size / world) << name;
          if (n > 100) i += 97;
        }
      }
}

// The result of a 16-bit wire: each rank (hierarchical: each node, with a float32 sum) rounds its message, messages are
// added in rank order, and the mean is rounded once.
template <class T>
std::vector<float> expected_mean(bool hierarchical, const Topology& topology, int64_t n) {
  const int group = hierarchical ? topology.workers_per_node : 1;
  std::vector<float> sum(static_cast<size_t>(n));
  for (int first = 0; first < topology.world(); first += group) {
    std::vector<float> sent = random_row<float>(21, first, n);
    for (int rank = first + 1; rank < first + group; ++rank) {
      const std::vector<float> row = random_row<float>(21, rank, n);
      for (size_t i = 0; i < row.size(); ++i) sent[i] += row[i];
    }
    for (size_t i = 0; i < sent.size(); ++i) sum[i] += T(sent[i]);
  }
  for (float& x : sum) x = T(x / static_cast<float>(topology.world()));
  return sum;
}

TEST(Exchange, SixteenBitWireMatchesTheFormulaBitForBit) {
  for (const Topology& topology : kTopologies)
    for (const std::string& name : kExact)
      for (int64_t n : {0, 1, 33, 5000}) {
        const bool hierarchical = name == "hierarchical";
        if ((hierarchical ? topology.nodes : topology.world()) == 1) {  // no network traffic
          EXPECT_EQ(exchanged<float>(name, topology, n, "bf16"), exchanged<float>(name, topology, n, "f32")) << name;
          continue;
        }
        EXPECT_EQ(exchanged<float>(name, topology, n, "bf16"), expected_mean<bf16>(hierarchical, topology, n)) << name;
        EXPECT_EQ(exchanged<float>(name, topology, n, "f16"), expected_mean<f16>(hierarchical, topology, n)) << name;
      }
}

TEST(Exchange, SixteenBitWireSendsHalfTheBytes) {
  for (int n : {1, 2, 3, 4})
    for (int m : {1, 2, 3})
      for (const char* wire : {"bf16", "f16"}) {
        const Topology topology{n, m};
        run_local(topology, [&](Communicator& comm) {
          Buckets buckets = make_buckets(4097, topology);
          const CommStats& stats = *comm.stats;
          const int64_t world = n * m, bytes = 2 * buckets[0].padded_numel();
          make_exchange(with_wire("dense", wire), buckets, comm, 1)->mean(buckets[0], comm, 1);
          EXPECT_EQ(stats.total().bytes_intra + stats.total().bytes_inter, 2 * (world - 1) * bytes / world);
          for (const char* phase : {"dense/all_to_all", "dense/all_gather"}) {
            EXPECT_EQ(stats.phase(phase).bytes_intra, (m - 1) * bytes / world);
            EXPECT_EQ(stats.phase(phase).bytes_inter, (n - 1) * m * bytes / world);
          }
          comm.stats->reset();
          make_exchange(with_wire("hierarchical", wire), buckets, comm, 1)->mean(buckets[0], comm, 1);
          EXPECT_EQ(stats.total().bytes_inter, 2 * (n - 1) * bytes / (m * n)) << "16 bits between nodes";
          EXPECT_EQ(stats.total().bytes_intra, 2 * (m - 1) * 2 * bytes / m) << "float32 within a node";
        });
      }
}

// Pitfall 32: links within a node are fast, so messages within a node are not compressed.
TEST(Exchange, Pitfall32CompressesOnlyBetweenNodes) {
  for (const char* wire : {"bf16", "f16"}) {
    EXPECT_EQ(exchanged<float>("hierarchical", {1, 4}, 5000, wire), exchanged<float>("hierarchical", {1, 4}, 5000));
    run_local({2, 3}, [&](Communicator& comm) {
      std::vector<CommCount> counts;
      for (const char* type : {"f32", wire}) {
        Buckets buckets = make_buckets(4097, {2, 3});
        comm.stats->reset();
        make_exchange(with_wire("hierarchical", type), buckets, comm, 1)->mean(buckets[0], comm, 1);
        counts.push_back(comm.stats->total());
      }
      EXPECT_EQ(counts[1].bytes_intra, counts[0].bytes_intra);
      EXPECT_EQ(2 * counts[1].bytes_inter, counts[0].bytes_inter);
    });
  }
}

// 65520 is the smallest number that rounds to infinity in float16. The mean of representable values is representable.
TEST(Exchange, OverflowOfTheWireIsAnErrorThatNamesTheRemedy) {
  for (const std::string& name : kExact) {
    auto mean_of = [&](float value, const char* wire) {
      float result = 0;
      run_local({2, 1}, [&](Communicator& comm) {
        Buckets buckets = make_buckets(100, {2, 1});
        buckets[0].grad.data<float>()[70] = value;
        make_exchange(with_wire(name, wire), buckets, comm, 1)->mean(buckets[0], comm, 1);
        if (comm.rank == 0) result = buckets[0].grad.data<float>()[70];
      });
      return result;
    };
    EXPECT_EQ(mean_of(65519, "f16"), 65504);
    EXPECT_EQ(mean_of(-65504, "f16"), -65504);
    EXPECT_EQ(mean_of(65536, "bf16"), 65536);
    for (float value : {65520.0f, -1e30f}) {
      const std::string error = error_of([&] { mean_of(value, "f16"); });
      EXPECT_NE(error.find(name + ": the value " + (value > 0 ? "65520" : "-1e+30") + " overflows float16"),
                std::string::npos)
          << error;
      EXPECT_NE(error.find("exchange.wire=bf16"), std::string::npos) << error;
    }
    EXPECT_NE(error_of([&] { mean_of(std::numeric_limits<float>::max(), "bf16"); }).find("overflows bfloat16"),
              std::string::npos);
    EXPECT_TRUE(std::isnan(mean_of(std::nanf(""), "f16"))) << "the same as with float32";
    EXPECT_EQ(mean_of(INFINITY, "bf16"), INFINITY);
  }
}

// Sums of integers are exact, so both must give the same bits, divisions included.
TEST(Exchange, HierarchicalEqualsDenseIfSumsAreExact) {
  for (const Topology& topology : kTopologies)
    for (int64_t n : {1, 33, 1001})
      run_local(topology, [&](Communicator& comm) {
        Buckets a = make_buckets(n, topology, DType::f64), b = make_buckets(n, topology, DType::f64);
        for (int64_t i = 0; i < n; ++i)
          a[0].grad.data<double>()[i] = static_cast<double>((i * 37 + comm.rank * 101) % 1000 - 500);
        b[0].grad.copy_from(a[0].grad);
        make_exchange("dense", a, comm, 1)->mean(a[0], comm, 1);
        make_exchange("hierarchical", b, comm, 1)->mean(b[0], comm, 1);
        EXPECT_EQ(a[0].grad.to_vector<double>(), b[0].grad.to_vector<double>());
      });
}

TEST(Exchange, BytesPerRankEqualTheFormulas) {
  for (int n : {1, 2, 3, 4})
    for (int m : {1, 2, 3})
      for (int64_t d : {1, 100, 4097}) {
        const Topology topology{n, m};
        run_local(topology, [&](Communicator& comm) {
          Buckets buckets = make_buckets(d, topology);
          make_exchange("hierarchical", buckets, comm, 1)->mean(buckets[0], comm, 1);
          make_exchange("dense", buckets, comm, 1)->mean(buckets[0], comm, 1);
          const int64_t bytes = 4 * buckets[0].padded_numel(), world = n * m;  // P
          const CommStats& stats = *comm.stats;
          EXPECT_EQ(stats.phase("hierarchical/intra_reduce_scatter").bytes_intra, (m - 1) * bytes / m);
          EXPECT_EQ(stats.phase("hierarchical/inter_all_reduce").bytes_inter, 2 * (n - 1) * bytes / (m * n));
          EXPECT_EQ(stats.phase("hierarchical/intra_all_gather").bytes_intra, (m - 1) * bytes / m);
          EXPECT_EQ(stats.phase("dense/all_reduce").bytes_intra, 2 * (m - 1) * bytes / world);
          EXPECT_EQ(stats.phase("dense/all_reduce").bytes_inter, 2 * (n - 1) * m * bytes / world);
          EXPECT_EQ(stats.total().bytes_inter, 2 * (n - 1) * bytes / (m * n) + 2 * (n - 1) * m * bytes / world);
          EXPECT_EQ(stats.total().calls, 4);
        });
      }
}

TEST(Exchange, RefusesUnknownNamesAndUnalignedBuckets) {
  run_local({1, 1}, [](Communicator& comm) {
    const Buckets buckets = make_buckets(6, {1, 1});
    EXPECT_THROW(make_exchange("ring", buckets, comm, 1), Error);
    EXPECT_THROW(make_exchange(with_wire("dense", "f8"), buckets, comm, 1), Error);
  });
  EXPECT_THROW(run_local({2, 2},
                         [](Communicator& comm) {
                           Buckets buckets({{"w", Var(Tensor::zeros({6}), true), true}}, {.alignment = 2});
                           make_exchange("hierarchical", buckets, comm, 1)->mean(buckets[0], comm, 1);
                         }),
               Error);
}

TEST(CheckIdentical, PassesIfEqualAndOtherwiseNamesTheRanks) {
  run_local({2, 3}, [](Communicator& comm) { check_identical(*comm.world, 0xffffffffffffffffu, "layout"); });
  for (int bit : {0, 31, 63})
    run_local({2, 3}, [&](Communicator& comm) {
      const bool odd = comm.rank == 1 || comm.rank == 4;
      try {
        check_identical(*comm.world, uint64_t{odd} << bit, "the parameters' hash");
        ADD_FAILURE() << "rank " << comm.rank << " reported no difference";
      } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "ranks disagree on the parameters' hash: ranks 1 and 4 differ from the rest");
      }
      EXPECT_EQ(comm.stats->phase("agree").bytes_intra, 2 * 8);
      EXPECT_EQ(comm.stats->phase("agree").bytes_inter, 3 * 8);
    });
}

}  // namespace exchange_test
}  // namespace godwit
