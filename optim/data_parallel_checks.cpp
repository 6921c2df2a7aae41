// The checks of DataParallel: finite gradients, identical replicas, and checks whose results a GPU returns later.
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "comm/buckets/finite.h"
#include "comm/consistency.h"
#include "comm/host_tensor.h"
#include "engine/context.h"
#include "engine/hash.h"
#include "optim/data_parallel.h"

namespace godwit {
namespace {

// "the gradient of 'conv1.weight' at element 17", by global offset.
std::string location_of(const Buckets& buckets, int64_t element) {
  for (const Bucket& bucket : buckets)
    for (const Slot& slot : bucket.slots)
      if (const int64_t i = element - bucket.begin - slot.offset; i >= 0 && i < slot.numel)
        return detail::concat("the gradient of '", slot.name, "' at element ", i);
  fail("element ", element, " is in no parameter");
}

}  // namespace

void DataParallel::check_finite(const Bucket& bucket) {
  find_not_finite(bucket.grad, bucket.numel, [this, &bucket, step = info_.step](const NotFinite& bad) {
    fail_not_finite(options_.optimizer.name(), step, bucket, bad);
  });
}

void DataParallel::swap_reads() {
  reads_->close();
  reads_.swap(last_reads_);
  try {
    reads_->run([this] { comm_.world->barrier("checks"); });
  } catch (...) {
    last_reads_ = std::make_unique<HostReads>();  // an error of the last step causes others in this one
    throw;
  }
}

void DataParallel::finish_checks() {
  last_reads_->run([this] { comm_.world->barrier("checks"); });
}

void DataParallel::find_cause() {
  if (context().device.is_cuda()) {
    try {
      scheduler_.synchronize();  // checks of the communication stream may still be copied to the host
    } catch (const Error&) {     // the caller has the first error
    }
  }
  last_reads_->run();
  held_.run();
  reads_->run();
}

void DataParallel::read_with_checks(const Tensor& x, HostReads::Read f) {
  if (!x.device().is_cuda()) return f(x);
  (holds_gradients() ? held_ : *reads_).add(x, std::move(f), HostReads::Order::first);
}

bool DataParallel::takes_step() {
  const int ranks = comm_.world->size();
  std::vector<int64_t> own{first_bad_};
  if (options_.refuse_step) own.push_back(std::bit_cast<int64_t>(squares_));
  const int64_t width = std::ssize(own);
  const Tensor all({ranks * width}, DType::i64, kCpu);
  comm_.world->all_gather(cpu_tensor(own), all, "non_finite/all_gather");
  int64_t bad = buckets_.numel(), rank_of_bad = 0;
  double squares = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t* of_rank = all.data<int64_t>() + rank * width;
    if (of_rank[0] < bad) bad = of_rank[0], rank_of_bad = rank;
    if (options_.refuse_step) squares += std::bit_cast<double>(of_rank[1]);
  }
  if (bad < buckets_.numel()) {
    skip_reason_ = detail::concat(location_of(buckets_, bad), " is not finite on rank ", rank_of_bad);
    check(options_.skip_not_finite, options_.optimizer.name(), ": step ", info_.step, ": ", skip_reason_);
    return false;
  }
  const std::string reason = options_.refuse_step ? options_.refuse_step(std::sqrt(squares / ranks)) : "";
  if (!reason.empty()) skip_reason_ = reason;
  return reason.empty();
}

// If parameters are sharded, ranks gather them and compare the received values.
void DataParallel::check_replicas() {
  finish_checks();
  check(synchronized(), "check_replicas: after step ", info_.step, " the replicas differ, because the optimizer takes ",
        "local steps; call synchronize() first");
  const std::string when = " after step " + std::to_string(info_.step);
  std::vector<uint64_t> hashes;
  std::vector<std::string> names;
  const auto add = [&](const Bucket& bucket) {
    for (const Slot& slot : bucket.slots) {
      Hash hash;
      hash.add(bucket.param.range(slot.offset, slot.numel), slot.numel);
      hashes.push_back(hash.value());
      names.push_back(detail::concat("the parameter '", slot.name, "' (bucket ", bucket.index, ")", when));
    }
  };
  if (parameters_) parameters_->for_each(add, false);
  else std::for_each(buckets_.begin(), buckets_.end(), add);
  check_identical(*comm_.world, hashes, [&](size_t i) { return names[i]; });
  check_shared_state(when);
}

void DataParallel::check_shared_state(const std::string& when, const std::string& remedy) {
  if (!parameters_ || hybrid())
    check_identical(*between_.world, optimizer_->shared_state_hash(), "the optimizer's shared state" + when, remedy);
}

}  // namespace godwit
