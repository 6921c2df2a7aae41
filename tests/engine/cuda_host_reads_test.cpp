// Deferred reads of GPU values by the host.
#include "engine/host_reads.h"
#include "engine/stream.h"
#include "tests/on_gpu.h"
#include "tests/support.h"

namespace godwit {
namespace cuda_host_reads_test {

class CudaHostReads : public OnGpu {};

TEST_F(CudaHostReads, AreNotDeferredOnTheCpuOrOutsideOfAScope) {
  on_gpu([] {
    HostReads reads;
    double seen = 0;
    read_on_host(Tensor::full({1}, 3), [&](const Tensor& x) { seen = x.item(); });
    EXPECT_EQ(seen, 3);
    const HostReadsScope scope(reads);
    EXPECT_TRUE(reads_later(cuda_device(0)));
    EXPECT_FALSE(reads_later(kCpu));
    read_on_host(Tensor::full({1}, 4).to(kCpu), [&](const Tensor& x) { seen = x.item(); });
    EXPECT_EQ(seen, 4);
  });
}

TEST_F(CudaHostReads, KeepTheValuesAtTheTimeOfTheCall) {
  on_gpu([] {
    HostReads first, second;
    std::vector<double> seen;
    const Tensor x = Tensor::full({2}, 1);
    const auto note = [&](const Tensor& values) { seen.push_back(values.item(1)); };
    for (HostReads* reads : {&first, &second}) {
      const HostReadsScope scope(*reads);
      read_on_host(x, note);
      x.fill(reads == &first ? 2 : 3);
      read_on_host(x, note);
      reads->add(Tensor::full({2}, 7), note, HostReads::Order::first);
      reads->close();
    }
    EXPECT_TRUE(seen.empty());
    first.run();
    EXPECT_EQ(seen, (std::vector<double>{7, 1, 2}));
    second.run();
    second.run();
    EXPECT_EQ(seen, (std::vector<double>{7, 1, 2, 7, 2, 3}));
  });
}

TEST_F(CudaHostReads, SharedValuesAreReadAfterTheRanksHaveMet) {
  on_gpu([] {
    HostReads reads;
    std::vector<double> seen;
    const auto note = [&](const Tensor& values) { seen.push_back(values.item()); };
    for (int i = 0; i < 2; ++i) {
      reads.add(Tensor::full({1}, 2), note, HostReads::Order::shared);
      reads.add(Tensor::full({1}, 1), note);
      i == 0 ? reads.run([&] { seen.push_back(0); }) : reads.run();
    }
    EXPECT_EQ(seen, (std::vector<double>{1, 0, 2, 1}));
    reads.run([&] { seen.push_back(0); });
    EXPECT_EQ(seen.size(), 4u) << "without shared values, the ranks do not meet";
  });
}

TEST_F(CudaHostReads, AnErrorDropsTheRest) {
  on_gpu([] {
    HostReads reads;
    int seen = 0;
    reads.add(Tensor::full({1}, 1), [](const Tensor& x) { fail("it is ", x.item()); });
    reads.add(Tensor::full({1}, 1), [&](const Tensor&) { ++seen; });
    EXPECT_NE(error_of([&] { reads.run(); }).find("it is 1"), std::string::npos);
    reads.run();
    EXPECT_EQ(seen, 0);
  });
}

TEST_F(CudaHostReads, TakesValuesOfAnotherThread) {
  on_gpu([] {
    HostReads reads;
    double seen = 0;
    {
      Stream stream;
      stream.submit([&] {
        const HostReadsScope scope(reads);
        read_on_host(Tensor::full({1}, 5), [&](const Tensor& x) { seen += x.item(); });
      });
      stream.wait();
      reads.close();
    }
    reads.run();
    EXPECT_EQ(seen, 5);
  });
}

}  // namespace cuda_host_reads_test
}  // namespace godwit
