// Tiles of keys and values for a block that owns queries.
#pragma once
#include "autograd/ops/attention/cuda/attention_draws.h"

namespace godwit::detail {

// A tile of keys with one bit per key: 1 if the key is attended. After the last tile, `attended` is 0.
struct KeyTile {
  int first;
  uint64_t attended;
};

// Two tiles of a head: one is loaded while the other is used. The object is in shared memory, with the constants of the
// block, because registers are scarce.
template <class Of, bool kDrops>
class KeyTiles {
 public:
  Chunk k[2][Of::kChunks], v[2][Of::kChunks];
  KeyTile tiles[2];

  // Starts loading the first tile for the block's queries, which begin at query `of_block`.
  __device__ void start(const AttentionView& call, const AttentionHeadView& head, int of_block, const bf16* of_k,
                        const bf16* of_v, KeptBits kept) {
    if (threadIdx.x == 0) {
      mask_ = call.mask == nullptr ? nullptr : call.mask + head.b * call.keys;
      first_ = head.keys(call).first;
      row_ = static_cast<uint32_t>(head.number(call) * call.queries + of_block);
      rows_ = static_cast<int>(call.queries) - of_block;
      end_ = static_cast<int>(call.keys_end(of_block + Of::kOwnRows - 1));
    }
    __syncthreads();
    load(call, of_k, of_v, kept, 0, 0);
  }

  // Waits for tile `stage` and starts loading the next. Returns false if there is no tile `stage`.
  __device__ bool next(const AttentionView& call, const bf16* of_k, const bf16* of_v, KeptBits kept, int stage) {
    await_copies();
    __syncthreads();  // this tile is loaded; all threads have finished the previous one
    if (tiles[stage].attended == 0) return false;
    load(call, of_k, of_v, kept, tiles[stage].first + Of::kRows, stage ^ 1);
    return true;
  }

  // With dropout, sets bit 8 (n % 4) + c of kept[m][r][n / 4] for query 16m + lane / 4 + 8r of the warp and key
  // `from` + 8n + 2 (lane % 4) + c of tile `stage`.
  template <int kWords>
  __device__ void read_kept(int stage, int from, uint32_t (&kept)[Of::kM][2][kWords]) const {
    if constexpr (kDrops) {
      const int first = (tiles[stage].first + from) / 32 % 4;
#pragma unroll
      for (int m = 0; m < Of::kM; ++m)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const Chunk& row = kept_[stage][warp() * Of::kWarpRows + 16 * m + 8 * r + lane() / 4];
#pragma unroll
          for (int w = 0; w < kWords; ++w) kept[m][r][w] = row.words[first + w] >> (from % 32 + 2 * (lane() % 4));
        }
    }
  }

 private:
  // Starts loading the first tile from key `from` with an attended key. All warps find the same tile.
  __device__ void load(const AttentionView& call, const bf16* of_k, const bf16* of_v, KeptBits kept, int from,
                       int stage) {
    KeyTile tile{from, 0};
    for (; tile.first < end_; tile.first += Of::kRows) {
      if (call.mask == nullptr) {
        tile.attended = lowest(call.keys - tile.first) & lowest(Of::kRows);
        break;
      }
      for (int part = 0; part < Of::kRows; part += 32) {
        const int key = tile.first + part + lane();
        const bool attended = key < call.keys && mask_[key] != 0;
        tile.attended |= uint64_t{__ballot_sync(~0u, attended)} << part & lowest(Of::kRows);
      }
      if (tile.attended != 0) break;
    }
    if (threadIdx.x == 0) tiles[stage] = tile;
    if (tile.attended == 0) return;
    const TileRows<Of> rows(call, {call.keys, first_, call.key_stride});
    rows.load(of_k, tile.first, tile.attended, k[stage]);
    rows.load(of_v, tile.first, tile.attended, v[stage]);
    const int i = static_cast<int>(threadIdx.x);
    if (kDrops && i < Of::kOwnRows) {
      const auto row_words = static_cast<uint32_t>(KeptBits::row_words(call.keys));
      copy_async(kept_[stage] + i, kept.words + ((row_ + threadIdx.x) * row_words + tile.first / 128 * 4), i < rows_);
    }
  }

  Chunk kept_[2][kDrops ? Of::kOwnRows : 1];  // dropout bits, for 128 keys of a query each
  const uint8_t* mask_;                       // mask of the batch entry
  int64_t first_;                             // first element of the head's keys
  uint32_t row_;                              // first query of the block, counted over all heads
  int rows_, end_;                            // number of queries from there; end of the keys that they attend
};

}  // namespace godwit::detail
