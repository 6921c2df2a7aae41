#include "optim/saved_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "comm/gather.h"
#include "engine/dtype.h"
#include "engine/excerpt.h"

namespace godwit::checkpoint {
namespace {

bool is_mask(const Tensor& values) { return values.dtype() == DType::u32; }

double value_at(const Tensor& x, int64_t i) {
  if (x.dtype() == DType::u8) return static_cast<const int8_t*>(x.address())[i];
  return x.item(i);
}

void set_value(const Tensor& x, int64_t i, double value) {
  if (x.dtype() == DType::f32) static_cast<float*>(x.address())[i] = static_cast<float>(value);
  else if (x.dtype() == DType::f64) static_cast<double*>(x.address())[i] = value;
  else if (x.dtype() == DType::u8) static_cast<int8_t*>(x.address())[i] = static_cast<int8_t>(std::lround(value));
  else x.range(i, 1).fill(value);
}

void copy_values(const Tensor& from, int64_t first, const Tensor& to, int64_t first_to, int64_t count) {
  if (is_mask(to)) {
    const auto* source = static_cast<const uint32_t*>(from.address());
    auto* target = static_cast<uint32_t*>(to.address());
    for (int64_t i = 0; i < count; ++i) {
      const int64_t there = first + i, here = first_to + i;
      const uint32_t bit = uint32_t{1} << (here % 32);
      target[here / 32] = (target[here / 32] & ~bit) | ((source[there / 32] >> (there % 32) & 1) != 0 ? bit : 0);
    }
    return;
  }
  const size_t size = static_cast<size_t>(size_of(to.dtype()));
  std::memcpy(static_cast<uint8_t*>(to.address()) + static_cast<size_t>(first_to) * size,
              static_cast<const uint8_t*>(from.address()) + static_cast<size_t>(first) * size,
              static_cast<size_t>(count) * size);
}

void check_type(const StateTensor& part, const SavedState::Piece& piece) {
  check(piece.values.dtype() == part.values.dtype(), part.name, " is saved as ", piece.values.dtype(),
        ", but this run keeps ", part.values.dtype(), "; resume with the options of the saved run");
}

// Calls f with a copy of each part in CPU memory, and then stores the copy.
template <class F>
void for_parts(const std::vector<StateTensor>& parts, const F& f) {
  for (const StateTensor& part : parts) {
    StateTensor here = part;
    const bool on_gpu = here.values.device().is_cuda();
    if (on_gpu) here.values = here.values.to(kCpu);
    f(here);
    if (on_gpu) part.values.copy_from(here.values);
  }
}

// Elements of a state tensor on a rank.
struct Holding {
  int rank;
  int64_t begin, end;
};

// A saved piece that covers a range of elements, and the index in the piece at which the range begins.
struct Source {
  const SavedState::Piece* piece;
  int64_t first;
};

}  // namespace

SavedState::SavedState(const std::map<std::string, Tensor>& tensors, int64_t numel) {
  for (const auto& [key, values] : tensors)
    if (const size_t at = key.rfind('@'); at != std::string::npos) {
      char* rest = nullptr;
      const int64_t begin = std::strtoll(key.c_str() + at + 1, &rest, 10);
      check(begin >= 0 && begin <= numel, excerpt(key), ": does not begin in the ", numel, " parameters");
      int64_t count = values.numel();
      if (is_mask(values)) {
        const int64_t most = count <= numel / 32 ? 32 * count : numel - begin;
        count = *rest == '+' ? std::strtoll(rest + 1, nullptr, 10) : std::min(most, numel - begin);
        check(count >= 0 && count <= 32 * values.numel(), excerpt(key), ": is no mask of ", count, " elements");
      }
      pieces_[key.substr(0, at)].push_back({begin, begin + count, values});
    }
  for (auto& [name, pieces] : pieces_) {
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
    // A mask of an older file does not state its number of elements. It ends at the latest where the next one begins.
    for (size_t i = 0; i + 1 < pieces.size(); ++i)
      if (is_mask(pieces[i].values)) pieces[i].end = std::min(pieces[i].end, pieces[i + 1].begin);
  }
}

const std::vector<SavedState::Piece>& SavedState::named(const std::string& name) const {
  static const std::vector<Piece> none;
  const auto found = pieces_.find(name);
  return found == pieces_.end() ? none : found->second;
}

void copy_state(const std::vector<StateTensor>& parts, const std::vector<int>& order,
                const std::function<const SavedState&(int rank)>& saved_by) {
  for_parts(parts, [&](const StateTensor& part) {
    const int64_t end = part.end();
    std::vector<bool> done(static_cast<size_t>(end - part.begin));
    int64_t missing = std::ssize(done);
    for (const int rank : order) {
      if (missing == 0) break;
      for (const SavedState::Piece& piece : saved_by(rank).named(part.name)) {
        check_type(part, piece);
        for (int64_t i = std::max(piece.begin, part.begin); i < std::min(piece.end, end);) {
          const auto is_done = [&](int64_t at) { return done[static_cast<size_t>(at - part.begin)]; };
          int64_t next = i;  // end of a run of elements that are all done, or all not done
          for (; next < std::min(piece.end, end) && is_done(next) == is_done(i); ++next) {
          }
          if (!is_done(i)) {
            copy_values(piece.values, i - piece.begin, part.values, i - part.begin, next - i);
            std::fill(done.begin() + (i - part.begin), done.begin() + (next - part.begin), true);
            missing -= next - i;
          }
          i = next;
        }
      }
    }
    check(missing == 0, "lacks ", missing, " of ", done.size(), " values of ", part.name,
          "; resume with the options of the saved run");
  });
}

std::vector<double> weights_of(int saved, int ranks, int j) {
  std::vector<double> weights(static_cast<size_t>(saved));
  // In units of 1 / (saved · ranks): new rank j has [j·saved, (j+1)·saved), saved rank k [k·ranks, (k+1)·ranks).
  for (int k = 0; k < saved; ++k) {
    const int64_t begin = std::max(int64_t{j} * saved, int64_t{k} * ranks);
    const int64_t end = std::min(int64_t{j + 1} * saved, int64_t{k + 1} * ranks);
    weights[static_cast<size_t>(k)] = static_cast<double>(std::max<int64_t>(end - begin, 0)) / saved;
  }
  return weights;
}

std::string redistribute(const std::vector<StateTensor>& parts, const std::vector<SavedState>& saved, Group& world) {
  std::map<std::string, std::vector<Holding>> holdings;  // of the new ranks, in their order
  {
    std::vector<std::string> own;
    for (const StateTensor& part : parts)
      own.insert(own.end(), {part.name, std::to_string(part.begin), std::to_string(part.end())});
    const auto all = gather_texts(world, own, "checkpoint/parts");
    for (size_t rank = 0; rank < all.size(); ++rank)
      for (size_t i = 0; i + 2 < all[rank].size(); i += 3)
        holdings[all[rank][i]].push_back(
            {static_cast<int>(rank), std::stoll(all[rank][i + 1]), std::stoll(all[rank][i + 2])});
  }
  std::set<std::string> averaged, moved, fresh, unused;
  on_all(world, [&] {
    for_parts(parts, [&](const StateTensor& part) {
      const int64_t end = part.end();
      // Between two borders, the same saved ranks and the same new ranks have values.
      std::set<int64_t> borders{part.begin, end};
      const auto add_border = [&](int64_t at) {
        if (at > part.begin && at < end) borders.insert(at);
      };
      for (const SavedState& of_rank : saved)
        for (const SavedState::Piece& piece : of_rank.named(part.name))
          check_type(part, piece), add_border(piece.begin), add_border(piece.end);
      for (const Holding& holding : holdings.at(part.name)) add_border(holding.begin), add_border(holding.end);
      for (auto border = borders.begin(); std::next(border) != borders.end(); ++border) {
        const int64_t from = *border, count = *std::next(border) - from, here = from - part.begin;
        std::vector<Source> sources;
        for (const SavedState& of_rank : saved)
          for (const SavedState::Piece& piece : of_rank.named(part.name))
            if (piece.begin <= from && from + count <= piece.end) sources.push_back({&piece, from - piece.begin});
        int ranks = 0, own = 0;
        for (const Holding& holding : holdings.at(part.name))
          if (holding.begin <= from && from + count <= holding.end) {
            if (holding.rank == world.rank()) own = ranks;
            ++ranks;
          }
        if (sources.empty()) {
          // After a rollback, the errors are of later steps.
          if (part.name.ends_with("/e") || part.name.ends_with("/server_e")) part.values.range(here, count).zero();
          fresh.insert(part.name);
          continue;
        }
        const bool of_one = sources.size() == 1 || part.is_mask();
        if (of_one && ranks == 1) moved.insert(part.name);
        if (of_one) {
          copy_values(sources[0].piece->values, sources[0].first, part.values, here, count);
          continue;
        }
        averaged.insert(part.name);
        const std::vector<double> weights = weights_of(static_cast<int>(sources.size()), ranks, own);
        std::vector<size_t> used;
        for (size_t k = 0; k < weights.size(); ++k)
          if (weights[k] > 0) used.push_back(k);
        if (used.size() == 1) {
          copy_values(sources[used[0]].piece->values, sources[used[0]].first, part.values, here, count);
          continue;
        }
        for (int64_t i = 0; i < count; ++i) {
          double sum = 0;
          for (const size_t k : used) sum += weights[k] * value_at(sources[k].piece->values, sources[k].first + i);
          set_value(part.values, here + i, sum);
        }
      }
    });
    for (const SavedState& of_rank : saved)
      for (const auto& [name, pieces] : of_rank.all())
        if (!holdings.contains(name)) unused.insert(name);
  });
  std::vector<std::string> said;  // alternately a kind and a name
  for (const auto& [kind, names] : std::map<std::string, const std::set<std::string>*>{
           {"a", &averaged}, {"b", &moved}, {"c", &fresh}, {"d", &unused}})
    for (const std::string& name : *names) said.insert(said.end(), {kind, name});
  std::map<std::string, std::set<std::string>> of_all;
  for (const std::vector<std::string>& of_rank : gather_texts(world, said, "checkpoint/redistributed"))
    for (size_t i = 0; i + 1 < of_rank.size(); i += 2) of_all[of_rank[i]].insert(of_rank[i + 1]);
  for (const std::string& name : of_all["c"])
    if (name.starts_with("extra/"))
      throw CheckpointFailed(detail::concat("the saved run has no values of ", name,
                                            " for some parameters; resume with the options of the saved run"));
  std::string line;
  const auto add = [&](const char* kind, const std::string& treatment) {
    std::string names;
    for (const std::string& name : of_all[kind]) names += (names.empty() ? "" : ", ") + name;
    if (!names.empty()) line += (line.empty() ? "" : "; ") + treatment + ": " + names;
  };
  add("a", "redistributed, with the mean over the workers kept");
  add("b", "moved to the workers that now own the values");
  add("c", "begins anew, because the saved run has none for some values");
  add("d", "not used, because this run has no such state");
  return line;
}

}  // namespace godwit::checkpoint
