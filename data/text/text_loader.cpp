#include "data/text/text_loader.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "engine/check.h"

namespace godwit::data {
namespace {

constexpr int64_t kMultiple = 8;

// One batch of text; each sample is one part.
class Job : public PrefetchJob {
 public:
  Job(const TextDataset& dataset, int64_t epoch, std::span<const uint32_t> samples) : dataset_(dataset), epoch_(epoch) {
    batch_.samples.assign(samples.begin(), samples.end());
    int64_t longest = 1, masked = 0;
    for (const int64_t sample : batch_.samples) {
      extents_.push_back(dataset.measure(sample, epoch));
      first_masked_.push_back(masked);
      longest = std::max(longest, extents_.back().tokens);
      masked += extents_.back().masked;
    }
    length_ = std::min((longest + kMultiple - 1) / kMultiple * kMultiple, std::max(longest, dataset.max_length()));
    const auto count = static_cast<int64_t>(samples.size());
    check(count <= std::numeric_limits<int32_t>::max() / length_, "batch: ", count, " samples of ", length_,
          " tokens are too many; lower --batch");
    const auto ints = [](const Shape& shape) { return Tensor(shape, DType::i32, kCpu); };
    batch_.ids = ints({count, length_});
    batch_.token_type_ids = ints({count, length_});
    batch_.mask = Tensor({count, length_}, DType::u8, kCpu);
    const TextDataset::Targets targets = dataset.targets();
    if (targets.labels) batch_.labels = ints({count});
    if (targets.spans) batch_.starts = ints({count}), batch_.ends = ints({count});
    if (targets.masked) batch_.masked_positions = ints({masked}), batch_.masked_labels = ints({masked});
  }

  size_t parts() const override { return batch_.samples.size(); }
  void prepare(size_t row) override;
  TextBatch take() { return std::move(batch_); }

 private:
  const TextDataset& dataset_;
  int64_t epoch_;
  int64_t length_ = 0;  // tokens per row, including padding
  std::vector<TextDataset::Extent> extents_;
  std::vector<int64_t> first_masked_;  // index of the first masked token of each row
  TextBatch batch_;
};

void Job::prepare(size_t row) {
  const TextSample sample = dataset_.read(batch_.samples[row], epoch_);
  const auto tokens = static_cast<int64_t>(sample.ids.size()), masked = std::ssize(sample.masked_positions);
  check(tokens == extents_[row].tokens && masked == extents_[row].masked, "loader: sample ", batch_.samples[row],
        " has ", tokens, " tokens, ", masked, " of them masked, but measure() returned ", extents_[row].tokens, " and ",
        extents_[row].masked);
  const int64_t begin = static_cast<int64_t>(row) * length_;
  int32_t* ids = batch_.ids.data<int32_t>() + begin;
  int32_t* types = batch_.token_type_ids.data<int32_t>() + begin;
  uint8_t* mask = batch_.mask.data<uint8_t>() + begin;
  std::fill(std::copy(sample.ids.begin(), sample.ids.end(), ids), ids + length_, dataset_.pad());
  std::fill_n(types, length_, 0);
  std::fill(types + sample.first, types + tokens, 1);
  std::fill(std::fill_n(mask, tokens, uint8_t{1}), mask + length_, uint8_t{0});
  const auto set = [&](const Tensor& to, int32_t value) {
    if (to.defined()) to.data<int32_t>()[row] = value;
  };
  set(batch_.labels, sample.label);
  set(batch_.starts, sample.start);
  set(batch_.ends, sample.end);
  for (int64_t i = 0; i < masked; ++i) {
    const int64_t to = first_masked_[row] + i;
    batch_.masked_positions.data<int32_t>()[to] =
        static_cast<int32_t>(begin) + sample.masked_positions[static_cast<size_t>(i)];
    batch_.masked_labels.data<int32_t>()[to] = sample.masked_labels[static_cast<size_t>(i)];
  }
}

}  // namespace

TextLoader::TextLoader(const TextDataset& dataset, LoaderOptions options, int64_t window)
    : dataset_(dataset),
      train_(options.train),
      sampler_(dataset.size(), options.sampling(), window),
      prefetcher_(options.prefetch, options.workers, train_ ? "loader" : "evaluation loader") {}

void TextLoader::start_epoch(int64_t epoch, int64_t first_batch) {
  check(first_batch >= 0 && first_batch <= batches(), "loader: batch ", first_batch, " of ", batches());
  epoch_ = train_ ? epoch : 0;
  sampler_.start_epoch(epoch, [this](int64_t sample) { return dataset_.measure(sample, epoch_).tokens; });
  submitted_ = first_batch;
  prefetcher_.start([this] {
    return submitted_ < batches() ? std::make_shared<Job>(dataset_, epoch_, sampler_.batch(submitted_++)) : nullptr;
  });
}

std::optional<TextBatch> TextLoader::next() {
  const std::shared_ptr<PrefetchJob> job = prefetcher_.next();
  if (!job) return std::nullopt;
  return static_cast<Job&>(*job).take();
}

}  // namespace godwit::data
