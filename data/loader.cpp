#include "data/loader.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "engine/check.h"

namespace godwit::data {
namespace {

// Linux keeps a nice value for each thread: preparing takes the time that computing leaves, and whole cores as soon as
// computing has to wait for it.
void lower_priority() { (void)setpriority(PRIO_PROCESS, 0, 10); }

}  // namespace

Loader::Loader(const ImageSource& source, LoaderOptions options)
    : source_(source),
      options_(options),
      sampler_(source.size(), {.batch = options_.batch,
                               .rank = options_.rank,
                               .world = options_.world,
                               .seed = options_.seed,
                               .train = options_.train}),
      submitted_(sampler_.batches()) {
  check(options_.prefetch >= 1, "loader: prefetch ", options_.prefetch, ", expected at least 1 batch");
  check(options_.workers >= 1, "loader: ", options_.workers, " workers, expected at least 1");
  for (int i = 0; i < options_.workers; ++i) threads_.emplace_back([this] { work(); });
}

Loader::~Loader() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  submitted_more_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Loader::start_epoch(int64_t epoch, int64_t first_batch) {
  check(first_batch >= 0 && first_batch <= batches(), "loader: batch ", first_batch, " of ", batches());
  {
    std::unique_lock lock(mutex_);
    for (const auto& job : ahead_) {  // what nobody has begun of another epoch is dropped
      job->done += job->samples.size() - job->taken;
      job->taken = job->samples.size();
    }
    for (const auto& job : ahead_) done_more_.wait(lock, [&] { return job->done == job->samples.size(); });
    ahead_.clear();
  }
  sampler_.start_epoch(epoch);
  epoch_ = epoch;
  submitted_ = first_batch;
  for (int i = 0; i < options_.prefetch; ++i) submit();
}

std::optional<Batch> Loader::next() {
  std::shared_ptr<Job> job;
  {
    std::unique_lock lock(mutex_);
    if (ahead_.empty()) return std::nullopt;
    job = ahead_.front();
    done_more_.wait(lock, [&] { return job->done == job->samples.size(); });
    ahead_.pop_front();
  }
  submit();
  if (job->error) std::rethrow_exception(std::move(job->error));
  return std::move(job->batch);
}

void Loader::submit() {
  if (submitted_ == batches()) return;
  const auto samples = sampler_.batch(submitted_++);
  const auto count = static_cast<int64_t>(samples.size());
  const Shape shape = source_.image_shape();
  auto job = std::make_shared<Job>();
  job->samples.assign(samples.begin(), samples.end());
  job->batch = {Tensor(Shape{count, shape[0], shape[1], shape[2]}), Tensor(Shape{count}, DType::i32)};
  {
    std::lock_guard lock(mutex_);
    ahead_.push_back(std::move(job));
  }
  submitted_more_.notify_all();
}

void Loader::work() {
  lower_priority();
  std::unique_lock lock(mutex_);
  const auto waiting = [](const auto& job) { return job->taken < job->samples.size(); };
  while (true) {
    auto next = ahead_.end();
    submitted_more_.wait(
        lock, [&] { return closing_ || (next = std::find_if(ahead_.begin(), ahead_.end(), waiting)) != ahead_.end(); });
    if (closing_) return;
    const std::shared_ptr<Job> job = *next;
    const size_t sample = job->taken++;
    lock.unlock();
    // The error travels as a value, taken before the lock: its last owner is then the thread that takes it, which
    // ThreadSanitizer can follow.
    std::exception_ptr error;
    try {
      prepare(*job, sample);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !job->error) job->error = std::move(error);
    if (++job->done == job->samples.size()) done_more_.notify_all();
  }
}

void Loader::prepare(Job& job, size_t i) const {
  const int64_t sample = job.samples[i], numel = source_.image_shape().numel();
  float* to = job.batch.images.data<float>() + static_cast<int64_t>(i) * numel;
  job.batch.labels.data<int32_t>()[i] =
      options_.train ? source_.read_augmented(sample, epoch_, to) : source_.read(sample, to);
}

}  // namespace godwit::data
