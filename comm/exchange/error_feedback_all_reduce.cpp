#include "comm/exchange/error_feedback_all_reduce.h"

#include <algorithm>
#include <cmath>

#include "engine/data_ptr.h"
#include "engine/host_reads.h"

namespace godwit {
namespace {

BlockLayout layout_of(const Bucket& bucket, int64_t scale_block, int ranks) {
  return scale_block < 0 ? BlockLayout::whole(bucket, ranks) : BlockLayout(bucket, scale_block, ranks);
}

// `at`: the first value of a block whose scale is not finite. `values`: the values sent; undefined if no longer known.
[[noreturn]] void fail_not_finite(const std::string& name, const Bucket& bucket, const Tensor& values, int64_t at,
                                  int64_t step) {
  if (!values.defined()) {
    const auto slot = std::find_if(bucket.slots.begin(), bucket.slots.end(),
                                   [&](const Slot& s) { return at >= s.offset && at < s.offset + s.numel; });
    fail(name, ": step ", step, ": a value sent for '", slot == bucket.slots.end() ? "padding" : slot->name,
         "' or its block, including the error feedback, is not finite; lower the learning rate");
  }
  const Tensor here = values.to(kCpu);
  const float* z = here.data<float>();
  const float* bad = std::find_if(z + at, z + bucket.numel, [](float value) { return !std::isfinite(value); });
  const int64_t i = bad == z + bucket.numel ? at : bad - z;
  for (const Slot& slot : bucket.slots) {
    if (i < slot.offset || i >= slot.offset + slot.numel) continue;
    fail(name, ": step ", step, ": the value sent for '", slot.name, "', including the error feedback, is ", z[i],
         " at element ", i - slot.offset,
         bad == z + bucket.numel ? ", but its scale is not finite" : "",
         "; lower the learning rate or look for a division by zero in the loss");
  }
  fail(name, ": step ", step, ": a value of bucket ", bucket.index, " is not finite");
}

}  // namespace

ErrorFeedbackAllReduce::ErrorFeedbackAllReduce(const std::string& name, const ErrorFeedbackOptions& options,
                                               const Buckets& buckets, const Communicator& comm)
    : name_(name), scale_(options.scale) {
  const int ranks = comm.topology.world();
  check(options.scale_block >= -1, name, ": the scale block is ", options.scale_block,
        " values; expected a number of values, 0 (one scale per parameter) or -1 (one scale per sender)");
  const double mib = std::ceil(static_cast<double>(buckets.numel()) * 4 / (1 << 20) * 1000) / 1000;
  check(options.scale_block >= 0 || buckets.size() == 1, name,
        ": one scale for the whole model (a scale block of -1) needs the model in one bucket, but it is in ",
        buckets.size(), "; set bucket.first_mib to ", mib, " or more");
  for (const Bucket& bucket : buckets) {
    check(bucket.param.dtype() == DType::f32, name, ": parameters are ", bucket.param.dtype(), ", expected float32");
    const BlockLayout layout = layout_of(bucket, options.scale_block, ranks);
    BucketState state{bucket.begin, bucket.numel, layout.segment(comm.rank),     0,
                      {},           {},           Tensor::zeros({bucket.numel}), {}};
    const int64_t scales = layout.most_parts();
    state.words = scales + (layout.longest() + 31) / 32;
    int64_t block = 0;
    for (int k = 0; k < ranks; ++k) {
      int64_t slot = 0;
      for (const Segment& piece : layout.parts(k)) {
        while (layout.block(block).end <= piece.begin) ++block;
        const int64_t bit = 32 * scales + piece.begin - layout.segment(k).begin;
        state.sent.add(piece.begin, piece.numel(), 32 * k * state.words + bit, k * state.words + slot, block);
        if (k == comm.rank) state.served.add(piece.begin - state.owned.begin, piece.numel(), bit, slot, slot);
        ++slot;
      }
    }
    if (ranks > 1) state.server_e = Tensor::zeros({state.owned.numel()});
    states_.push_back(std::move(state));
  }
}

ErrorFeedbackAllReduce::BucketState& ErrorFeedbackAllReduce::bucket_state(const Bucket& bucket) {
  const size_t i = static_cast<size_t>(bucket.index);
  check(i < states_.size() && states_[i].bucket_begin == bucket.begin && states_[i].numel == bucket.numel, name_,
        ": bucket ", bucket.index, " was not passed to the constructor; use the same buckets");
  return states_[i];
}

void ErrorFeedbackAllReduce::mean(const Bucket& bucket, const Tensor& z, const Tensor& mean, Communicator& comm,
                                  int64_t step) {
  BucketState& state = bucket_state(bucket);
  const int ranks = comm.world->size();
  const Tensor sent = Tensor::zeros({ranks * state.words}, DType::u32);
  const Tensor fault = on_device(z, [&](auto device) {
    return compress_signs(device, data_ptr<float>(device, z), data_ptr<float>(device, state.e), state.sent, scale_,
                          data_ptr<uint32_t>(device, sent));
  });
  read_on_host(fault, [this, &bucket, step, z, later = reads_later(z.device())](const Tensor& x) {
    if (const int64_t bad = first_fault(x); bad >= 0) fail_not_finite(name_, bucket, later ? Tensor() : z, bad, step);
  });
  if (ranks > 1) {
    const Tensor received(sent.shape(), DType::u32), own = Tensor::zeros({state.words}, DType::u32);
    comm.world->all_to_all(sent, received, name_ + "/all_to_all");
    const Tensor fault_of_mean = on_device(z, [&](auto device) {
      return compress_mean_of_signs(device, data_ptr<uint32_t>(device, received), ranks, state.words,
                                    data_ptr<float>(device, state.server_e), state.served, scale_,
                                    data_ptr<uint32_t>(device, own));
    });
    const auto check_scales = [this, &bucket, step](const Tensor& x) {
      check(first_fault(x) < 0, name_, ": step ", step, ": a scale of bucket ", bucket.index,
            " is not finite; lower the learning rate");
    };
    read_on_host(fault_of_mean, check_scales, HostReads::Order::shared);
    comm.world->all_gather(own, sent, name_ + "/all_gather");
  }
  on_device(z, [&](auto device) {
    expand_signs(device, data_ptr<uint32_t>(device, sent), state.sent, data_ptr<float>(device, mean));
  });
}

std::vector<StateTensor> ErrorFeedbackAllReduce::state() const {
  std::vector<StateTensor> all;
  for (const BucketState& state : states_) {
    all.push_back({"e", state.bucket_begin, state.e, false});
    if (state.server_e.defined() && state.owned.numel() > 0)
      all.push_back({"server_e", state.bucket_begin + state.owned.begin, state.server_e, false});
  }
  return all;
}

}  // namespace godwit
