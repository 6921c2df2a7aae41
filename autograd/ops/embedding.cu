#include "autograd/ops/embedding.h"
#include "autograd/ops/embedding_pieces.h"
#include "engine/cuda/reduce.h"
#include "engine/graph.h"

namespace godwit {
namespace {

using detail::load_pack, detail::Pack, detail::store_pack;

// A row of the table for each position.
template <class T>
struct Gather {
  const int32_t* ids;
  const T* table;
  int64_t width;
  template <int n>
  __device__ void operator()(uint32_t row, uint32_t c, T (&values)[n]) const {
    const auto from = load_pack<n>(table + ids[row] * width + c, 0);
    for (int k = 0; k < n; ++k) values[k] = from.values[k];
  }
};

// One block per piece: partial [pieces, width] = the sum of the rows of dy at its positions. Threads process n columns
// at a time.
template <int n, class T>
__global__ void embedding_piece_kernel(int64_t width, const int32_t* order, const int32_t* piece, const T* dy,
                                       compute_t<T>* partial) {
  const int32_t begin = piece[blockIdx.x], end = piece[blockIdx.x + 1];
  for (int64_t c = threadIdx.x * n; c < width; c += blockDim.x * n) {
    Pack<compute_t<T>, n> sum = {};
    for (int32_t i = begin; i < end; ++i) {
      const auto from = load_pack<n>(dy + order[i] * width + c, 0);
      for (int k = 0; k < n; ++k) sum.values[k] += compute_t<T>(from.values[k]);
    }
    store_pack(partial + blockIdx.x * width + c, sum);
  }
}

// One block per row of the table that was used; no effect if row < 0.
template <int n, class T>
__global__ void embedding_add_kernel(int64_t width, const int32_t* first, const int32_t* row,
                                     const compute_t<T>* partial, T* d_table) {
  if (row[blockIdx.x] < 0) return;
  T* to = d_table + row[blockIdx.x] * width;
  const int32_t begin = first[blockIdx.x], end = first[blockIdx.x + 1];
  for (int64_t c = threadIdx.x * n; c < width; c += blockDim.x * n) {
    Pack<compute_t<T>, n> sum = {};
    for (int32_t p = begin; p < end; ++p) {
      const auto from = load_pack<n>(partial + p * width + c, 0);
      for (int k = 0; k < n; ++k) sum.values[k] += from.values[k];
    }
    auto values = load_pack<n>(to + c, 0);
    for (int k = 0; k < n; ++k) values.values[k] = static_cast<T>(compute_t<T>(values.values[k]) + sum.values[k]);
    store_pack(to + c, values);
  }
}

}  // namespace

void embedding_forward(Cuda device, const Tensor& ids, const Tensor& table, const Tensor& y) {
  const Tensor there = ids.to(table.device());
  dispatch_float(table.dtype(), "embedding", [&]<class T>() {
    const T* from = table.cuda_data<T>();
    const int64_t width = table.dim(1);
    generate_rows(device, "embedding", ids.numel(), width, width, Gather<T>{there.cuda_data<int32_t>(), from, width},
                  y.cuda_data<T>(), from);
  });
}

// The host, which has the ids, sorts the positions while the GPU is still busy with earlier work. A captured step has
// the maximum number of pieces and rows; unused pieces and rows are empty.
void embedding_backward(Cuda device, const Tensor& ids, const Tensor& dy, const Tensor& d_table,
                        std::optional<int64_t> padding) {
  const auto sorted = [=] { return detail::EmbeddingPieces(ids.span<int32_t>(), padding); };
  const detail::EmbeddingPieces pieces = sorted();
  const int64_t width = d_table.dim(1), n = ids.numel();
  const int64_t rows = capturing() ? n : std::ssize(pieces.row);
  const int64_t count = capturing() ? n : std::ssize(pieces.piece) - 1;
  const Tensor all({n + count + 1 + rows + 1 + rows}, DType::i32, kCpu);  // in one copy
  const auto write = [=](const detail::EmbeddingPieces& from) {
    const auto put = [](const std::vector<int32_t>& values, int32_t* to, int64_t room, int32_t rest) {
      return std::fill_n(std::copy(values.begin(), values.end(), to), room - std::ssize(values), rest);
    };
    int32_t* to = put(from.order, all.data<int32_t>(), n, 0);
    to = put(from.piece, to, count + 1, from.piece.back());
    to = put(from.first, to, rows + 1, from.first.back());
    put(from.row, to, rows, -1);
  };
  write(pieces);
  on_replay([=] { write(sorted()); });
  const Tensor there = all.to(d_table.device());
  const int32_t *order = there.cuda_data<int32_t>(), *piece = order + n;
  const int32_t *first = piece + count + 1, *row = first + rows + 1;
  dispatch_float(dy.dtype(), "embedding", [&]<class T>() {
    using C = compute_t<T>;
    const Tensor partial({count, width}, dtype_of<C>, d_table.device());
    const T* from = dy.cuda_data<T>();
    T* to = d_table.cuda_data<T>();
    C* sums = partial.cuda_data<C>();
    by_packs<T>(
        width,
        [&]<int n>() {
          const int threads = row_threads(width / n);
          launch(device, "embedding", embedding_piece_kernel<n, T>, count, threads, width, order, piece, from, sums);
          launch(device, "embedding", embedding_add_kernel<n, T>, rows, threads, width, first, row, sums, to);
        },
        from, to);
  });
}

}  // namespace godwit
