#include "comm/exchange/error_feedback_all_reduce.h"

#include <algorithm>
#include <cmath>

#include "engine/data_ptr.h"

namespace godwit {
namespace {

BlockLayout layout_of(const Bucket& bucket, int64_t scale_block, int ranks) {
  return scale_block < 0 ? BlockLayout::whole(bucket, ranks) : BlockLayout(bucket, scale_block, ranks);
}

[[noreturn]] void fail_not_finite(const std::string& name, const Bucket& bucket, const Tensor& values, int64_t at,
                                  int64_t step) {
  const Tensor here = values.to(kCpu);
  const float* z = here.data<float>();
  const float* bad = std::find_if(z + at, z + bucket.numel, [](float value) { return !std::isfinite(value); });
  const int64_t i = bad == z + bucket.numel ? at : bad - z;
  for (const Slot& slot : bucket.slots) {
    if (i < slot.offset || i >= slot.offset + slot.numel) continue;
    fail(name, ": step ", step, ": what is sent of '", slot.name, "' is ", z[i], " at element ", i - slot.offset,
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
  check(options.scale_block >= -1, name, ": a scale for ", options.scale_block,
        " values; it must be a number of values, 0 for whole parameters or -1 for everything a rank sends");
  const double mib = std::ceil(static_cast<double>(buckets.numel()) * 4 / (1 << 20) * 1000) / 1000;
  check(options.scale_block >= 0 || buckets.size() == 1, name,
        ": one scale for the whole model (a block of -1 values), ",
        "which needs the model in one bucket, but it is in ", buckets.size(), "; set bucket.first_mib to ", mib,
        " or more");
  for (const Bucket& bucket : buckets) {
    check(bucket.param.dtype() == DType::f32, name, ": works on float32 parameters, not ", bucket.param.dtype());
    const BlockLayout layout = layout_of(bucket, options.scale_block, ranks);
    Part part{bucket.begin, bucket.numel, layout.segment(comm.rank), 0, {}, {}, Tensor::zeros({bucket.numel}), {}};
    const int64_t scales = layout.most_parts();
    part.words = scales + (layout.longest() + 31) / 32;
    int64_t block = 0;
    for (int k = 0; k < ranks; ++k) {
      int64_t slot = 0;
      for (const Segment& piece : layout.parts(k)) {
        while (layout.block(block).end <= piece.begin) ++block;
        const int64_t bit = 32 * scales + piece.begin - layout.segment(k).begin;
        part.sent.add(piece.begin, piece.numel(), 32 * k * part.words + bit, k * part.words + slot, block);
        if (k == comm.rank) part.served.add(piece.begin - part.owned.begin, piece.numel(), bit, slot, slot);
        ++slot;
      }
    }
    if (ranks > 1) part.server_e = Tensor::zeros({part.owned.numel()});
    parts_.push_back(std::move(part));
  }
}

ErrorFeedbackAllReduce::Part& ErrorFeedbackAllReduce::part_of(const Bucket& bucket) {
  const size_t i = static_cast<size_t>(bucket.index);
  check(i < parts_.size() && parts_[i].bucket_begin == bucket.begin && parts_[i].numel == bucket.numel, name_,
        ": bucket ", bucket.index, " is not one it was made for");
  return parts_[i];
}

void ErrorFeedbackAllReduce::mean(const Bucket& bucket, const Tensor& z, const Tensor& mean, Communicator& comm,
                                  int64_t step) {
  Part& part = part_of(bucket);
  const int ranks = comm.world->size();
  const Tensor sent = Tensor::zeros({ranks * part.words}, DType::u32);
  const int64_t bad = on_device(z, [&](auto device) {
    return compress_signs(device, elements<float>(device, z), elements<float>(device, part.e), part.sent, scale_,
                          elements<uint32_t>(device, sent));
  });
  if (bad >= 0) fail_not_finite(name_, bucket, z, bad, step);
  if (ranks > 1) {
    const Tensor received(sent.shape(), DType::u32), own = Tensor::zeros({part.words}, DType::u32);
    comm.world->all_to_all(sent, received, name_ + "/all_to_all");
    const int64_t wrong = on_device(z, [&](auto device) {
      return compress_mean_of_signs(device, elements<uint32_t>(device, received), ranks, part.words,
                                    elements<float>(device, part.server_e), part.served, scale_,
                                    elements<uint32_t>(device, own));
    });
    check(wrong < 0, name_, ": step ", step, ": a scale of bucket ", bucket.index,
          " is not finite; lower the learning rate");
    comm.world->all_gather(own, sent, name_ + "/all_gather");
  }
  on_device(z, [&](auto device) {
    expand_signs(device, elements<uint32_t>(device, sent), part.sent, elements<float>(device, mean));
  });
}

std::vector<StatePart> ErrorFeedbackAllReduce::state() const {
  std::vector<StatePart> state;
  for (const Part& part : parts_) {
    state.push_back({"e", part.bucket_begin, part.e, false});
    if (part.server_e.defined() && part.owned.numel() > 0)
      state.push_back({"server_e", part.bucket_begin + part.owned.begin, part.server_e, false});
  }
  return state;
}

}  // namespace godwit
