#include "optim/ema.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/data_ptr.h"
#include "engine/update_each.h"

namespace godwit {
namespace {

void follow(const Tensor& values, const Tensor& averages, double weight) {
  on_device(values, [&](auto device) {
    dispatch_real(values.dtype(), "ema", [&]<class T>() {
      const T* x = data_ptr<T>(device, values);
      update_each(device, "ema", 0, values.numel(), detail::FollowUpdate<T>{static_cast<T>(weight)},
                  data_ptr<T>(device, averages), x);
    });
  });
}

void exchange(const Tensor& x, const Tensor& y) {
  on_device(x, [&](auto device) {
    dispatch_real(x.dtype(), "ema", [&]<class T>() {
      update_each(device, "ema", 0, x.numel(), detail::Swap<T>{}, data_ptr<T>(device, x), data_ptr<T>(device, y));
    });
  });
}

}  // namespace

Ema::Ema(Buckets& buckets, std::vector<Tensor> buffers, double decay)
    : buckets_(buckets), buffers_(std::move(buffers)), decay_(decay) {
  check(decay >= 0 && decay < 1, "ema: decay must be at least 0 and below 1, not ", decay);
  for (const Bucket& bucket : buckets_) averages_.push_back(bucket.param.clone());
  updated_.assign(averages_.size(), 0);
  for (const Tensor& buffer : buffers_) {
    check(buffer.dtype() == DType::f32 || buffer.dtype() == DType::f64, "ema: a buffer is ", buffer.dtype(),
          "; buffers are float32 or float64");
    buffer_averages_.push_back(buffer.clone());
  }
}

double Ema::weight(int64_t step, int64_t steps) const {
  check(step >= 1, "ema: steps count from 1, not ", step);
  const auto t = static_cast<double>(step);
  const double d = std::min(decay_, (1 + t) / (10 + t));
  return 1 - (steps == 1 ? d : std::pow(d, static_cast<double>(steps)));
}

void Ema::continue_after(int64_t step) { updated_.assign(updated_.size(), step); }

void Ema::update(const Bucket& bucket, int64_t step) {
  const auto i = static_cast<size_t>(bucket.index);
  check(i < averages_.size() && averages_[i].numel() == bucket.padded_numel(), "ema: bucket ", bucket.index,
        " was not passed to the constructor; use the same buckets");
  const int64_t steps = step - updated_[i];
  const double w = weight(step, steps);
  updated_[i] = step;
  if (steps == 0) return;
  const Segment& owned = bucket.owned;
  follow(bucket.param.range(owned.begin, owned.numel()), averages_[i].range(owned.begin, owned.numel()), w);
}

void Ema::complete(const std::function<void(const Bucket&, const Tensor&)>& complete) const {
  for (const Bucket& bucket : buckets_) complete(bucket, averages_[static_cast<size_t>(bucket.index)]);
}

void Ema::update_buffers(int64_t step) {
  for (size_t i = 0; i < buffers_.size(); ++i)
    follow(buffers_[i], buffer_averages_[i], weight(step));
}

std::vector<StateTensor> Ema::state() const {
  std::vector<StateTensor> all;
  for (const Bucket& bucket : buckets_) {
    const int64_t begin = bucket.owned.begin, end = std::min(bucket.owned.end, bucket.numel);
    if (begin >= end) continue;
    const Tensor& averages = averages_[static_cast<size_t>(bucket.index)];
    all.push_back({"ema", bucket.begin + begin, averages.range(begin, end - begin), bucket.shards.empty()});
  }
  return all;
}

void Ema::swap() {
  for (const Bucket& bucket : buckets_) exchange(bucket.param, averages_[static_cast<size_t>(bucket.index)]);
  for (size_t i = 0; i < buffers_.size(); ++i) exchange(buffers_[i], buffer_averages_[i]);
}

}  // namespace godwit
