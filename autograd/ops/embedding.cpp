#include "autograd/ops/embedding.h"

#include <limits>
#include <vector>

#include "engine/graph.h"
#include "engine/vector_loop.h"

namespace godwit {
namespace {

constexpr int64_t kColumns = 16;  // minimum columns per thread: a cache line of float32

void check_embedding(const Tensor& ids, const Tensor& table) {
  check(table.shape().rank() == 2, "embedding: the table must be [rows, width], got ", table.shape());
  check(ids.dtype() == DType::i32 && ids.shape().rank() == 1, "embedding: ids must be ", DType::i32, " [n], got ",
        ids.dtype(), " ", ids.shape());
  check(ids.numel() <= std::numeric_limits<int32_t>::max(), "embedding: ", ids.numel(),
        " ids exceed the limit of 2^31 - 1");
  const auto check_ids = [=, rows = table.dim(0)] {
    const int32_t* id = ids.data<int32_t>();
    for (int64_t i = 0; i < ids.numel(); ++i)
      check(id[i] >= 0 && id[i] < rows, "embedding: id ", i, " is ", id[i], ", the table has ", rows, " rows");
  };
  check_ids();
  on_replay(check_ids);
}

// Positions sorted by id (stable). The positions of id r are order[start[r]] to order[start[r + 1] - 1].
struct Positions {
  std::vector<int32_t> start, order;

  Positions(const Tensor& ids, int64_t rows) : start(rows + 1), order(ids.numel()) {
    const int32_t* id = ids.data<int32_t>();
    for (int64_t i = 0; i < ids.numel(); ++i) ++start[id[i] + 1];
    for (int64_t r = 0; r < rows; ++r) start[r + 1] += start[r];
    std::vector<int32_t> next(start.begin(), start.end() - 1);
    for (int64_t i = 0; i < ids.numel(); ++i) order[next[id[i]]++] = static_cast<int32_t>(i);
  }
};

}  // namespace

void embedding_forward(Cpu, const Tensor& ids, const Tensor& table, const Tensor& y) {
  const int64_t width = table.dim(1);
  const int32_t* id = ids.data<int32_t>();
  dispatch_float(table.dtype(), "embedding", [&]<class T>() {
    const T* from = table.data<T>();
    T* to = y.data<T>();
    parallel_for(ids.numel(), std::max<int64_t>(1, (1 << 15) / (width + 1)), [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) std::copy_n(from + id[i] * width, width, to + i * width);
    });
  });
}

// Threads split the columns, because all positions may have one id.
void embedding_backward(Cpu, const Tensor& ids, const Tensor& dy, const Tensor& d_table,
                        std::optional<int64_t> padding) {
  const int64_t rows = d_table.dim(0), width = d_table.dim(1), n = ids.numel();
  const Positions positions(ids, rows);
  const int32_t *start = positions.start.data(), *order = positions.order.data();
  dispatch_float(dy.dtype(), "embedding", [&]<class T>() {
    using C = compute_t<T>;
    const T* from = dy.data<T>();
    T* to = d_table.data<T>();
    compute_for(width, std::max<int64_t>(kColumns, (1 << 15) / (n + 1)), [=](int64_t begin, int64_t end) GODWIT_INLINE {
      const int64_t columns = end - begin;
      std::vector<C> sums(columns);
      C* __restrict sum = sums.data();
      for (int64_t r = 0; r < rows; ++r) {
        if (start[r] == start[r + 1] || r == padding) continue;
        std::fill_n(sum, columns, C(0));
        for (int32_t k = start[r]; k < start[r + 1]; ++k) {
          const T* row = from + order[k] * width + begin;
          for (int64_t c = 0; c < columns; ++c) sum[c] += C(row[c]);
        }
        T* row = to + r * width + begin;
        for (int64_t c = 0; c < columns; ++c) row[c] = T(C(row[c]) + sum[c]);
      }
    });
  });
}

// Ids are checked on the CPU, where loaders put them. For ids on a GPU, the host waits.
Var ops::embedding(const Tensor& ids, const Var& table, std::optional<int64_t> padding) {
  const Tensor here = ids.to(kCpu);
  check_embedding(here, table.value());
  check(!padding || (*padding >= 0 && *padding < table.dim(0)), "embedding: padding is row ", padding.value_or(0),
        ", the table has ", table.dim(0), " rows");
  Tensor y({ids.numel(), table.dim(1)}, table.dtype(), table.device());
  on_device(y, [&](auto device) { embedding_forward(device, here, table.value(), y); });
  return Var::result(y, {table}, [d_table = table.gradient(), here, padding](const Tensor& dy) {
    const Tensor g = d_table.sum();
    on_device(g, [&](auto device) { embedding_backward(device, here, dy, g, padding); });
  });
}

}  // namespace godwit
