#include "optim/late_variance.h"

#include <algorithm>
#include <cmath>

#include "engine/data_ptr.h"
#include "engine/update_each.h"
#include "optim/kernels/one_bit_kernels.h"

namespace godwit {
namespace {

constexpr const char* kLateVariance = "late variance";

// e ← 0 where v = 0, for `numel` values
void clear(const Tensor& v, const Tensor& e, int64_t numel) {
  on_device(e, [&](auto device) {
    float* to = data_ptr<float>(device, e);
    const float *from = to, *where = data_ptr<float>(device, v);
    update_each(device, kLateVariance, 0, numel, one_bit::WhereNotZero{}, to, from, where);
  });
}

// to ← f(from) where v = 0
void replace(const Bucket& bucket, const one_bit::WhereZero& f, const Tensor& to, const Tensor& from, const Tensor& v) {
  on_device(to, [&](auto device) {
    const float *source = data_ptr<float>(device, from), *where = data_ptr<float>(device, v);
    update_each(device, kLateVariance, 0, bucket.numel, f, data_ptr<float>(device, to), source, where);
  });
}

}  // namespace

LateVariance::LateVariance(bool on, double beta2, int64_t buckets)
    : on_(on), beta2_(beta2), zeros_(static_cast<size_t>(buckets), Zeros::unknown) {}

bool LateVariance::any(const Bucket& bucket, const Tensor& v) {
  if (!on_) return false;
  Zeros& zeros = zeros_.at(static_cast<size_t>(bucket.index));
  if (zeros == Zeros::unknown) {
    const Tensor here = v.to(kCpu);
    const float *begin = here.data<float>(), *end = begin + bucket.numel;
    zeros = std::find(begin, end, 0.0f) == end ? Zeros::none : Zeros::some;
  }
  return zeros == Zeros::some;
}

void LateVariance::begin(int64_t step, int64_t frozen_at) {
  if (step == step_) return;
  step_ = step;
  const bool measures = on_ && step > frozen_at;
  if (!since_) since_ = measures && step > frozen_at + 1 ? frozen_at + 1 : 0;  // as if T had not changed
  clears_ = measures != (*since_ > 0);
  if (clears_) since_ = measures ? step : 0;
}

void LateVariance::measure(const Bucket& bucket, const Tensor& v, const Tensor& e) {
  if (clears_) clear(v, e, bucket.numel);
  if (since_ == 0 || !any(bucket, v)) return;
  const one_bit::LateMoment update{{static_cast<float>(beta2_), static_cast<float>(1 - beta2_)}};
  on_device(e, [&](auto device) {
    const float *g = data_ptr<float>(device, bucket.grad), *where = data_ptr<float>(device, v);
    update_each(device, kLateVariance, 0, bucket.numel, update, data_ptr<float>(device, e), g, where);
  });
}

void LateVariance::mean(ErrorFeedbackAllReduce& all_reduce, const Bucket& bucket, const Tensor& v, const Tensor& z,
                        const Tensor& mean, Communicator& comm, int64_t step) {
  if (!any(bucket, v)) return all_reduce.mean(bucket, z, mean, comm, step);
  const Tensor& e = all_reduce.residual(bucket);
  const Tensor moments = e.clone();
  clear(v, e, bucket.numel);
  all_reduce.mean(bucket, z, mean, comm, step);
  replace(bucket, {.root = false}, e, moments, v);
  // Updates ignore values with v = 0. Without this, the errors of these values would become momentum once v changes.
  const auto [server_e, owned] = all_reduce.owner_residual(bucket);
  if (server_e.defined() && owned.numel() > 0) clear(v.range(owned.begin, owned.numel()), server_e, owned.numel());
}

Tensor LateVariance::exchange(const Bucket& bucket, const Tensor& v, const Tensor& e, Group& world, DenseWire wire,
                              const std::string& purpose) {
  const Tensor mean = bucket.grad.clone();
  if (any(bucket, v)) {
    replace(bucket, {.root = true}, mean, e, v);
    clear(v, e, bucket.numel);
  }
  dense_mean(world, mean, wire, purpose);
  zeros_.at(static_cast<size_t>(bucket.index)) = Zeros::unknown;
  return mean;
}

double LateVariance::correction() const {
  return 1 - std::pow(beta2_, static_cast<double>(step_ - since_.value_or(0) + 1));
}

// A negative number, because older checkpoints of 1-bit Adam and 1-bit LAMB end with a positive one.
void LateVariance::add_to(std::vector<double>& counters) const {
  if (since_) counters.push_back(-1 - static_cast<double>(*since_));
}

std::vector<double> LateVariance::restore(std::vector<double> counters) {
  std::fill(zeros_.begin(), zeros_.end(), Zeros::unknown);
  step_ = 0;
  since_.reset();
  if (!counters.empty() && counters.back() < 0 && counters.back() > -0x1p53) {
    since_ = -1 - std::llround(counters.back());
    counters.pop_back();
  }
  return counters;
}

bool has_refresh(int64_t after, int64_t h, int64_t first, int64_t last) {
  int64_t step = after + h;
  for (int64_t interval = 2 * h; step < first && interval < last; interval *= 2) step += interval;
  return step >= first && step <= last;
}

}  // namespace godwit
