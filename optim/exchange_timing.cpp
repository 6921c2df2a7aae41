#include "optim/exchange_timing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "autograd/leaf.h"
#include "comm/host_tensor.h"
#include "engine/clock.h"
#include "engine/context.h"

namespace godwit {
namespace {

constexpr int64_t kMib = 1 << 20, kDefaultMib = 25;
constexpr int64_t kSide = 256,
                  kMatrix = kSide * kSide * sizeof(float);  // rows and columns, bytes of a scratch parameter
constexpr int kSteps = 3;                                   // timed steps, after an untimed one

void mean_over_ranks(std::vector<double>& values, Communicator& comm) {
  const Tensor all = cpu_tensor(values);
  comm.world->all_reduce(all, Reduce::mean, "bucket_size/all_reduce");
  values = all.to_vector<double>();
}

// A loss whose gradients are values in [−1, 1), different in every step. Its backward pass sets `begin` immediately
// before the exchange begins. After that, the computing thread may have to wait for a core until the exchange has
// ended.
Var scratch_loss(const std::vector<Parameter>& parameters, uint32_t seed, Clock::time_point& begin) {
  std::vector<Var> inputs;
  std::vector<Gradient> gradients;
  for (const Parameter& parameter : parameters)
    inputs.push_back(parameter.var), gradients.push_back(parameter.var.gradient());
  return Var::result(Tensor::full({1}, 0), inputs, [gradients, inputs, seed, &begin](const Tensor&) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      std::vector<float> values(static_cast<size_t>(inputs[i].value().numel()));
      uint32_t state = seed + static_cast<uint32_t>(i);
      for (float& value : values) {
        state = state * 1664525u + 1013904223u;
        value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
      }
      gradients[i].add(Tensor::of(values, inputs[i].shape()));
    }
    synchronize();
    begin = Clock::now();
  });
}

// "0.123 ms", with three digits.
std::string milliseconds(double seconds) {
  std::ostringstream text;
  text.precision(3);
  if (seconds < 0.1) text << 1e3 * seconds << " ms";
  else text << std::llround(1e3 * seconds) << " ms";
  return text.str();
}

// Median seconds of the exchange and update of one bucket.
double time_of_bucket(int64_t matrices, Communicator& comm, const DataParallelOptions& options) {
  std::vector<Parameter> parameters;
  for (int64_t i = 0; i < matrices; ++i)
    parameters.push_back({"scratch" + std::to_string(i), Var(Tensor::full({kSide, kSide}, 1), true)});
  DataParallelOptions own = options;
  own.buckets.first_bytes = own.buckets.bytes = matrices * kMatrix;
  own.updated = nullptr;
  own.refuse_step = nullptr;
  if (own.optimizer.has("frozen")) own.optimizer.set("frozen", "");  // names of the model's parameters
  // Scratch gradients are larger than those of a model, and scratch parameters may have larger blocks.
  if (own.exchange.has("saturation_limit")) own.exchange.set("saturation_limit", "1");
  if (own.exchange.has("levels") && own.exchange.number("block_size") == 0) {
    const auto levels = static_cast<int64_t>(own.exchange.number("levels"));
    own.exchange.set("block_size", std::to_string(4 * levels * levels));
  }
  DataParallel replica(parameters, comm, own);
  std::vector<double> seconds;
  for (uint32_t step = 0; step <= kSteps; ++step) {
    Clock::time_point begin;
    const Var loss = scratch_loss(parameters, 1000 * step + static_cast<uint32_t>(comm.rank), begin);
    replica.begin_step(own.optimizer.number("lr"));
    comm.world->barrier("bucket_size");
    replica.backward(loss);
    replica.finish_step();
    synchronize();
    if (step > 0) seconds.push_back(seconds_since(begin));
  }
  std::nth_element(seconds.begin(), seconds.begin() + kSteps / 2, seconds.end());
  return seconds[kSteps / 2];
}

}  // namespace

BucketCost measure_bucket_cost(Communicator& comm, const DataParallelOptions& options) {
  constexpr int64_t kSmall = 1, kLarge = 32;
  const auto counted = comm.stats->phases();
  std::vector<double> seconds{time_of_bucket(kSmall, comm, options), time_of_bucket(kLarge, comm, options)};
  mean_over_ranks(seconds, comm);
  comm.stats->restore(counted);
  const double s_per_byte = std::max(0.0, seconds[1] - seconds[0]) / static_cast<double>((kLarge - kSmall) * kMatrix);
  return {std::max(0.0, seconds[0] - s_per_byte * static_cast<double>(kSmall * kMatrix)), s_per_byte};
}

std::vector<GradientTime> measure_gradient_times(const std::vector<Parameter>& parameters, Communicator& comm,
                                                 const std::function<Var()>& loss) {
  std::vector<Var> vars;
  for (const Parameter& parameter : parameters)
    if (std::find(vars.begin(), vars.end(), parameter.var) == vars.end()) vars.push_back(parameter.var);
  const auto counted = comm.stats->phases();
  std::vector<double> ready;
  for (int pass = 0; pass < 2; ++pass) {
    for (const Var& var : vars) var.clear_grad();
    const Var value = loss();
    synchronize();
    const auto begin = Clock::now();
    ready.assign(vars.size(), -1);
    for (size_t i = 0; i < vars.size(); ++i)
      Leaf(vars[i]).on_grad([&, i] {
        synchronize();
        ready[i] = seconds_since(begin);
      });
    backward(value);
    synchronize();
    const double end = seconds_since(begin);
    for (double& seconds : ready)
      if (seconds < 0) seconds = end;  // the loss does not depend on the parameter
  }
  for (const Var& var : vars) {
    Leaf(var).on_grad(nullptr);
    Leaf(var).release_grad();
  }
  mean_over_ranks(ready, comm);
  comm.stats->restore(counted);
  std::vector<GradientTime> times;
  for (size_t i = 0; i < vars.size(); ++i) times.push_back({vars[i].value().bytes(), ready[i]});
  return times;
}

double predicted_seconds(const std::vector<GradientTime>& gradients, const BucketCost& cost, bool overlaps,
                         const BucketOptions& sizes) {
  std::vector<int64_t> bytes;
  double end = 0, now = 0;
  for (const GradientTime& gradient : gradients) {
    bytes.push_back(gradient.bytes);
    end = std::max(end, gradient.ready_s);
  }
  const std::vector<int> bucket = bucket_of_parameters(bytes, sizes);
  for (size_t i = gradients.size(); i > 0;) {
    double ready = overlaps ? 0 : end, of_bucket = cost.s_per_bucket;
    for (const int index = bucket[i - 1]; i > 0 && bucket[i - 1] == index; --i) {
      ready = std::max(ready, gradients[i - 1].ready_s);
      of_bucket += cost.s_per_byte * static_cast<double>(bytes[i - 1]);
    }
    now = std::max(now, ready) + of_bucket;
  }
  return now;
}

BucketSize best_bucket_size(const std::vector<GradientTime>& gradients, const BucketCost& cost, bool overlaps,
                            const BucketOptions& sizes) {
  std::map<int64_t, double> seconds;
  for (const int64_t mib : {1, 2, 4, 8, 16, 25, 32, 64}) {
    BucketOptions candidate = sizes;
    candidate.bytes = mib * kMib;
    seconds[mib] = predicted_seconds(gradients, cost, overlaps, candidate);
  }
  auto best = std::min_element(seconds.begin(), seconds.end(), [](auto& a, auto& b) { return a.second < b.second; });
  if (seconds[kDefaultMib] <= 1.01 * best->second) best = seconds.find(kDefaultMib);
  double backward_s = 0;
  for (const GradientTime& gradient : gradients) backward_s = std::max(backward_s, gradient.ready_s);
  std::string reason =
      detail::concat("a bucket takes ", milliseconds(cost.s_per_bucket), " and ", milliseconds(cost.s_per_byte * kMib),
                     " per MiB, backward ", milliseconds(backward_s),
                     "; from the beginning of the backward pass to the last update ", milliseconds(best->second));
  if (best->first != kDefaultMib)
    reason += detail::concat(", with ", kDefaultMib, " MiB ", milliseconds(seconds[kDefaultMib]));
  return {best->first, best->second, reason};
}

BestWire best_wire(const std::vector<WireTime>& times) {
  const auto least = std::min_element(times.begin(), times.end(),
                                      [](const WireTime& a, const WireTime& b) { return a.seconds < b.seconds; });
  const auto best = least->seconds <= 0.95 * times.front().seconds ? least : times.begin();
  std::string reason = "from the beginning of the backward pass to the last update " + milliseconds(best->seconds);
  for (const WireTime& time : times)
    if (&time != &*best) reason += ", with " + time.wire + " " + milliseconds(time.seconds);
  return {static_cast<size_t>(best - times.begin()), reason};
}

}  // namespace godwit
