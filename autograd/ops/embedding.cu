#include "autograd/ops/embedding.h"
#include "autograd/ops/embedding_pieces.h"
#include "engine/cuda/reduce.h"
#include "engine/graph.h"

namespace godwit {
namespace {

// One block per position.
template <class T>
__global__ void gather_kernel(int64_t width, const int32_t* ids, const T* table, T* y) {
  const T* from = table + ids[blockIdx.x] * width;
  T* to = y + blockIdx.x * width;
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x) to[c] = from[c];
}

// One block per piece: partial [pieces, width] = the sum of the rows of dy at its positions.
template <class T>
__global__ void piece_kernel(int64_t width, const int32_t* order, const int32_t* piece, const T* dy,
                             compute_t<T>* partial) {
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x) {
    compute_t<T> sum = 0;
    for (int32_t k = piece[blockIdx.x]; k < piece[blockIdx.x + 1]; ++k) sum += compute_t<T>(dy[order[k] * width + c]);
    partial[blockIdx.x * width + c] = sum;
  }
}

// One block per row of the table that was used; no effect if row < 0.
template <class T>
__global__ void add_kernel(int64_t width, const int32_t* first, const int32_t* row, const compute_t<T>* partial,
                           T* d_table) {
  if (row[blockIdx.x] < 0) return;
  T* to = d_table + row[blockIdx.x] * width;
  for (int64_t c = threadIdx.x; c < width; c += blockDim.x) {
    compute_t<T> sum = 0;
    for (int32_t p = first[blockIdx.x]; p < first[blockIdx.x + 1]; ++p) sum += partial[p * width + c];
    to[c] = static_cast<T>(compute_t<T>(to[c]) + sum);
  }
}

}  // namespace

void embedding_forward(Cuda device, const Tensor& ids, const Tensor& table, const Tensor& y) {
  const Tensor there = ids.to(table.device());
  dispatch_float(table.dtype(), "embedding", [&]<class T>() {
    launch(device, "embedding", gather_kernel<T>, ids.numel(), row_threads(table.dim(1)), table.dim(1),
           there.cuda_data<int32_t>(), table.cuda_data<T>(), y.cuda_data<T>());
  });
}

// The host, which has the ids, sorts the positions while the GPU is still busy with earlier work. A captured step has
// the maximum number of pieces and rows; unused ones are empty.
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
    launch(device, "embedding", piece_kernel<T>, count, row_threads(width), width, order, piece, dy.cuda_data<T>(),
           partial.cuda_data<C>());
    launch(device, "embedding", add_kernel<T>, rows, row_threads(width), width, first, row, partial.cuda_data<C>(),
           d_table.cuda_data<T>());
  });
}

}  // namespace godwit
