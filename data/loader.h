// Loader: the batches of one rank, prepared ahead by a few threads of low priority.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "data/image_source.h"
#include "data/sampler.h"
#include "engine/tensor.h"

namespace godwit::data {

struct Batch {
  Tensor images;  // [b, h, w, c] float32
  Tensor labels;  // [b] int32
};

struct LoaderOptions {
  int64_t batch = 1;  // samples of one rank in one batch
  int rank = 0, world = 1;
  uint64_t seed = 0;
  bool train = true;  // shuffled and augmented; else in order, every sample once over all ranks
  int prefetch = 2;   // batches held ready or in work, at least 1
  int workers = 1;    // threads that prepare them, at least 1; no bit depends on their number
};

// Make it on the rank's thread: batches come from that rank's pool. Errors of the preparing threads come out of next().
class Loader {
 public:
  Loader(const ImageSource& source, LoaderOptions options);  // keeps a reference to the source
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  int64_t batches() const { return sampler_.batches(); }     // of this rank in an epoch
  void start_epoch(int64_t epoch, int64_t first_batch = 0);  // at any time; first_batch: where a resumed epoch goes on
  std::optional<Batch> next();                               // none at the end of the epoch, or before start_epoch()

 private:
  // A batch in work: samples are handed out in order, it is ready when all that were handed out are done.
  struct Job {
    Batch batch;
    std::vector<uint32_t> samples;
    size_t taken = 0, done = 0;
    std::exception_ptr error;
  };

  void submit();
  void work();
  void prepare(Job& job, size_t i) const;

  const ImageSource& source_;
  LoaderOptions options_;
  Sampler sampler_;
  int64_t epoch_ = 0, submitted_ = 0;

  std::mutex mutex_;
  std::condition_variable submitted_more_, done_more_;
  std::deque<std::shared_ptr<Job>> ahead_;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace godwit::data
