#include "engine/host_reads.h"

#include <algorithm>
#include <utility>

#include "engine/context.h"
#include "engine/host_memory.h"

namespace godwit {
namespace {

thread_local HostReads* of_thread = nullptr;

}  // namespace

HostReads::~HostReads() {
  const auto none = [](const std::vector<Pending>& all) { return all.empty(); };
  if (std::all_of(pending_.begin(), pending_.end(), none)) return;
  try {
    if (closed_) copied_.block();
    else synchronize();
  } catch (const Error&) {  // a lost GPU copies nothing
  }
}

void HostReads::add(const Tensor& x, Read read, Order order) {
  Tensor values = on_device(x, [&](auto device) { return copy_in_stream_order(device, x); });
  const std::lock_guard lock(mutex_);
  pending_[static_cast<size_t>(order)].push_back({std::move(values), std::move(read)});
}

void HostReads::close() {
  copied_ = Event::record();
  closed_ = true;
}

void HostReads::run(const std::function<void()>& meet) {
  std::array<std::vector<Pending>, 3> pending;
  {
    const std::lock_guard lock(mutex_);
    pending.swap(pending_);
  }
  if (!closed_) close();
  closed_ = false;
  const Event copied = std::exchange(copied_, Event());
  if (std::all_of(pending.begin(), pending.end(), [](const auto& all) { return all.empty(); })) return;
  copied.block();
  for (const Order order : {Order::first, Order::own, Order::shared}) {
    const std::vector<Pending>& all = pending[static_cast<size_t>(order)];
    if (order == Order::shared && !all.empty()) {
      if (!meet) return;
      meet();
    }
    for (const Pending& one : all) one.read(one.values);
  }
}

HostReadsScope::HostReadsScope(HostReads& reads) : before_(std::exchange(of_thread, &reads)) {}
HostReadsScope::~HostReadsScope() { of_thread = before_; }

bool reads_later(Device device) { return of_thread && device.is_cuda(); }

void read_on_host(const Tensor& x, HostReads::Read read, HostReads::Order order) {
  if (reads_later(x.device())) of_thread->add(x, std::move(read), order);
  else read(x.to(kCpu));
}

}  // namespace godwit
