// Compares Godwit's collectives under mpirun with MPI's collectives in alternating runs after a check, and with the
// link rate. Also measures the cost of waiting.
#include <mpi.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "bench/measure.h"
#include "bench/program.h"
#include "comm/transport/launcher.h"
#include "comm/transport/mpi.h"
#include "comm/transport/round_choice.h"
#include "engine/stream.h"

using namespace godwit;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// CPU time of all threads of this process, including system time.
double cpu_seconds() {
  rusage use;
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * t.tv_usec; };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

double sum_over_ranks(double value) {
  double sum = 0;
  MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

double least(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

struct Way {
  const char* name;
  std::function<void(const Tensor&)> all_reduce;
  std::function<void()> barrier;
};

std::vector<Way> ways(Communicator& comm) {
  const auto ours = [&](const Tensor& x) { comm.world->all_reduce(x, Reduce::sum, "bench"); };
  const auto theirs = [](const Tensor& x) {
    MPI_Allreduce(MPI_IN_PLACE, x.raw(), static_cast<int>(x.numel()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  return {{"godwit", ours, [&] { comm.world->barrier("bench"); }},
          {"MPI_Allreduce", theirs, [] { MPI_Barrier(MPI_COMM_WORLD); }}};
}

void fill(const Tensor& x, int rank) {
  int64_t i = 0;
  for (float& value : x.span<float>()) value = static_cast<float>(i++ % 1000 * (rank + 1));
}

// Checks sums of whole numbers below 2^24. They are equal for every order of summation.
void check_sums(const Tensor& x, const Way& way, int rank, int world) {
  fill(x, rank);
  way.all_reduce(x);
  const int64_t factor = world * (world + 1) / 2;
  int64_t i = 0;
  for (float value : x.span<float>()) {
    check(value == static_cast<float>(i % 1000 * factor), "bench: ", way.name, " gives ", value, " at ", i);
    ++i;
  }
}

void time_all_reduce(Communicator& comm, int64_t bytes) {
  const std::vector<Way> both = ways(comm);
  const Tensor x({bytes / 4});
  // These calls also let a small all-reduce choose the faster number of rounds.
  for (int call = 0; call < (bytes <= (64 << 10) ? 2 * RoundChoice::kTrials : 1); ++call)
    for (const Way& way : both) check_sums(x, way, comm.rank, comm.world->size());
  const int repeats = bytes <= (1 << 20) ? 40 : bytes <= (1 << 24) ? 15 : 7;
  std::vector<double> wall[2], cpu[2];
  for (int i = 0; i < repeats; ++i)
    for (size_t w = 0; w < both.size(); ++w) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = now(), cpu_start = cpu_seconds();
      both[w].all_reduce(x);
      wall[w].push_back(now() - start);
      cpu[w].push_back(sum_over_ranks(cpu_seconds() - cpu_start));
    }
  if (comm.rank == 0)
    std::printf("%9lld bytes  godwit %9.3f ms (cpu of all %8.3f)  MPI_Allreduce %9.3f ms (cpu %8.3f)  ratio %5.2f\n",
                static_cast<long long>(bytes), 1e3 * median(wall[0]), 1e3 * median(cpu[0]), 1e3 * median(wall[1]),
                1e3 * median(cpu[1]), median(wall[0]) / median(wall[1]));
}

struct Exchange {
  const char* name;
  int64_t bytes;  // bytes that a rank sends and receives
  // polled: MPI's nonblocking collectives
  std::function<void()> fill, ours, mpi, polled;
  std::function<bool()> correct;  // checks the result
};

// Polls a nonblocking collective until it has completed. start(request) starts it.
template <class Start>
void poll(const Start& start) {
  MPI_Request request = MPI_REQUEST_NULL;
  start(&request);
  for (int done = 0; MPI_Test(&request, &done, MPI_STATUS_IGNORE), done == 0;) std::this_thread::yield();
}

// Exchanges of a bucket of 25 MiB. The 1-bit all-reduce exchanges one bit per value, as Birder does between nodes.
std::vector<Exchange> exchanges(Communicator& comm) {
  Group& group = *comm.world;
  const int n = group.size();
  const int64_t part = (int64_t{25} << 18) / (32 * n) * 32, values = n * part, words = values / 32;
  const Tensor x({values}), own({part}), bits({words}, DType::u32), met({words}, DType::u32),
      agreed({words}, DType::u32);
  const Tensor served = met.range(0, words / n);  // rank 0's bits of this rank's part
  const auto bit_word = [](int64_t i, int rank) { return static_cast<uint32_t>(i * 7 + rank); };
  const auto fill_x = [=] { fill(x, comm.rank); };
  const auto right_x = [=] {
    int64_t i = 0;
    return std::ranges::all_of(x.span<float>(),
                               [&](float y) { return y == static_cast<float>(i++ % 1000 * (n * (n + 1) / 2)); });
  };
  const auto count = static_cast<int>(part), count_words = static_cast<int>(words / n);
  return {{"all-reduce", 2 * (n - 1) * part * 4, fill_x, [=, &group] { group.all_reduce(x, Reduce::sum, "bench"); },
           [=] { MPI_Allreduce(MPI_IN_PLACE, x.raw(), n * count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); },
           [=] {
             poll([=](MPI_Request* r) {
               MPI_Iallreduce(MPI_IN_PLACE, x.raw(), n * count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, r);
             });
           },
           right_x},
          {"reduce-scatter, all-gather", 2 * (n - 1) * part * 4, fill_x,
           [=, &group] {
             group.reduce_scatter(x, own, Reduce::sum, "bench");
             group.all_gather(own, x, "bench");
           },
           [=] {
             MPI_Reduce_scatter_block(x.raw(), own.raw(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
             MPI_Allgather(own.raw(), count, MPI_FLOAT, x.raw(), count, MPI_FLOAT, MPI_COMM_WORLD);
           },
           [=] {
             poll([=](MPI_Request* r) {
               MPI_Ireduce_scatter_block(x.raw(), own.raw(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, r);
             });
             poll([=](MPI_Request* r) {
               MPI_Iallgather(own.raw(), count, MPI_FLOAT, x.raw(), count, MPI_FLOAT, MPI_COMM_WORLD, r);
             });
           },
           right_x},
          {"1-bit all-reduce", 2 * (n - 1) * words / n * 4,
           [=] {
             int64_t i = 0;
             for (uint32_t& word : bits.span<uint32_t>()) word = bit_word(i++, comm.rank);
           },
           [=, &group] {
             group.all_to_all(bits, met, "bench");
             group.all_gather(served, agreed, "bench");
           },
           [=] {
             MPI_Alltoall(bits.raw(), count_words, MPI_FLOAT, met.raw(), count_words, MPI_FLOAT, MPI_COMM_WORLD);
             MPI_Allgather(served.raw(), count_words, MPI_FLOAT, agreed.raw(), count_words, MPI_FLOAT, MPI_COMM_WORLD);
           },
           [=] {
             poll([=](MPI_Request* r) {
               MPI_Ialltoall(bits.raw(), count_words, MPI_FLOAT, met.raw(), count_words, MPI_FLOAT, MPI_COMM_WORLD, r);
             });
             poll([=](MPI_Request* r) {
               MPI_Iallgather(served.raw(), count_words, MPI_FLOAT, agreed.raw(), count_words, MPI_FLOAT,
                              MPI_COMM_WORLD, r);
             });
           },
           [=] {
             bool right = true;
             for (int64_t i = 0; i < words; ++i) {
               const int64_t at = comm.rank * (words / n) + i % (words / n);
               right = right && agreed.data<uint32_t>()[i] == bit_word(i, 0) &&
                       met.data<uint32_t>()[i] == bit_word(at, static_cast<int>(i / (words / n)));
             }
             return right;
           }}};
}

// With one rank per host: prints the fraction of the link rate that each exchange reaches on the slowest rank. `rate`:
// bytes per second and direction. Runs of Godwit, of MPI and of MPI's nonblocking collectives do not alternate, because
// the congestion control of a connection adapts to the traffic of the last second.
void time_line(Communicator& comm, double rate) {
  for (const Exchange& exchange : exchanges(comm)) {
    struct Run {
      const char* name;
      const std::function<void()>& exchange;
      std::vector<double> seconds = {};  // of the slowest rank
    };
    Run runs[] = {{"godwit", exchange.ours}, {"MPI", exchange.mpi}, {"MPI, polled", exchange.polled}};
    const double bound = static_cast<double>(exchange.bytes) / rate;
    const int repeats = std::clamp(static_cast<int>(4 / bound), 3, 40);
    for (Run& run : runs)
      for (int i = 0; i <= repeats; ++i) {
        exchange.fill();
        MPI_Barrier(MPI_COMM_WORLD);
        const double start = now();
        run.exchange();
        double mine = now() - start, slowest = 0;
        if (i == 0) check(exchange.correct(), "bench: ", exchange.name, " of ", run.name, " gives a wrong result");
        MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (i > 0) run.seconds.push_back(slowest);
      }
    if (comm.rank != 0) continue;
    std::printf("%-27s bound %7.1f ms", exchange.name, 1e3 * bound);
    for (const Run& run : runs)
      std::printf("  %s %7.1f ms (%3.0f %%, best %3.0f %%)", run.name, 1e3 * median(run.seconds),
                  100 * bound / median(run.seconds), 100 * bound / least(run.seconds));
    std::printf("\n");
    std::fflush(stdout);
  }
}

// Measures the CPU use of ranks that wait one second for rank 0.
void time_waiting(Communicator& comm) {
  for (const Way& way : ways(comm)) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = now(), cpu_start = cpu_seconds();
    if (comm.rank == 0) std::this_thread::sleep_for(std::chrono::seconds(1));
    way.barrier();
    const double cores = comm.rank == 0 ? 0 : (cpu_seconds() - cpu_start) / (now() - start);
    const double all = sum_over_ranks(cores);
    if (comm.rank == 0)
      std::printf("waiting in a barrier: %-14s %.3f cores per rank\n", way.name, all / (comm.world->size() - 1));
  }
}

double compute() {
  std::vector<float> x(4096, 1.0f);
  const double start = now();
  for (int i = 0; i < 40000; ++i)
    for (float& value : x) value = value * 0.999f + 0.001f;
  check(x[7] > 0, "bench: x[7] is ", x[7], ", expected above 0");
  return now() - start;
}

// Measures the computation of all ranks except 0 while another thread of each rank waits for rank 0. Rank 0 arrives
// after the computation.
void time_computing(Communicator& comm) {
  std::vector<double> alone, beside[2];
  for (int i = 0; i < 7; ++i) {
    comm.compute->barrier("bench/alone");
    if (comm.rank != 0) alone.push_back(compute());
    comm.compute->barrier("bench/beside");
    for (size_t w = 0; w < 2; ++w) {
      const Way way = ways(comm)[w];
      Stream stream;
      if (comm.rank != 0) {
        stream.submit(way.barrier);
        beside[w].push_back(compute());
      }
      comm.compute->barrier("bench/computed");
      if (comm.rank == 0) way.barrier();
      stream.wait();
    }
  }
  for (size_t w = 0; w < 2; ++w) {
    const double ratio = comm.rank == 0 ? 0 : least(beside[w]) / least(alone);
    const double all = sum_over_ranks(ratio);
    if (comm.rank == 0)
      std::printf("computing next to a waiting thread: %-14s %.2f times as long as alone\n", ways(comm)[w].name,
                  all / (comm.world->size() - 1));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* usage =
      "usage: mpirun -np 4 build/release/bench/bench_mpi_collectives\n"
      "       tools/netlab --hosts 4 --rate 100mbit -- build/release/bench/bench_mpi_collectives\n"
      "Godwit's all-reduce compared with MPI's, after a check of the results, and the cost of waiting.\n"
      "Under netlab: the share of the line's rate that collectives reach on a bucket of 25 MiB, and small messages.\n"
      "Needs at least two ranks.";
  return bench::run_program(argc, argv, usage, [] {
    const std::optional<Launcher> launched = launcher();
    check(launched && launched->world > 1, "needs at least two ranks to compare collectives, there ",
          launched ? "is 1" : "is no launcher", "; use mpirun -np 4 bench_mpi_collectives");
    try {
      const char* line = std::getenv("NETLAB_MBIT");  // set by netlab: measured rate of a link in Mbit/s
      run_mpi({0, 1}, [&](Communicator& comm) {
        if (line) {
          for (int64_t bytes = 4096; bytes <= 65536; bytes *= 4) time_all_reduce(comm, bytes);
          const double mbit = std::atof(line);
          check(mbit > 0, "NETLAB_MBIT is '", line, "'; expected a rate above 0");
          return time_line(comm, 1e6 / 8 * mbit);
        }
        for (int64_t bytes = 4096; bytes <= (64 << 20); bytes *= 4) time_all_reduce(comm, bytes);
        time_waiting(comm);
        time_computing(comm);
      });
    } catch (const PeerFailed&) {  // reported by the failed rank
      std::exit(1);
    }
  });
}
