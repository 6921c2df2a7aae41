#include "optim/birder.h"

#include <algorithm>
#include <utility>

#include "comm/buckets/finite.h"
#include "engine/data_ptr.h"
#include "engine/did_you_mean.h"
#include "engine/host_reads.h"
#include "optim/decay.h"

namespace godwit {
namespace {

// Parses "a, b" to {"a", "b"}; throws unless each name is a parameter.
std::vector<std::string> frozen_names(const std::string& list, const Buckets& buckets) {
  std::vector<std::string> names, known;
  for (const Bucket& bucket : buckets)
    for (const Slot& slot : bucket.slots) known.push_back(slot.name);
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const size_t first = list.find_first_not_of(' ', begin);
    const std::string name =
        first < end ? list.substr(first, list.find_last_not_of(' ', end - 1) + 1 - first) : std::string();
    check(std::find(known.begin(), known.end(), name) != known.end(), "birder: frozen: the model has no parameter '",
          name, "'", did_you_mean(name, known));
    names.push_back(name);
    begin = end + 1;
  }
  return names;
}

// Pointer to the word whose first bit belongs to the bucket's value `offset`, a multiple of 32; null if undefined.
const uint32_t* bits_at(const Tensor& words, int64_t offset) {
  return words.defined() ? static_cast<const uint32_t*>(words.address()) + offset / 32 : nullptr;
}

// Data pointer of a state tensor of any type, on the parameters' device; null if undefined.
template <class T>
T* values_of(const Tensor& x) {
  return x.defined() ? static_cast<T*>(x.address()) : nullptr;
}

}  // namespace

void Birder::Options::describe(OptionList& list) {
  describe_common(*this, list);
  list.add("beta", beta, "decay rate of the means of gradients and of their magnitudes", kDecayRate);
  list.add("eps", eps, "added to the denominator", kPositiveFloat);
  list.add("error_feedback", error_feedback, "where quantization errors are kept and added to the next step");
  list.add("quantizer", quantizer,
           "rounding of a ratio to ±1: random and unbiased, or its sign, which requires error feedback of the worker");
  list.add("collective", collective, "Hierarchical-1-bit-All-Reduce, or, for comparison, an all-gather of all signs");
  list.add("t0", t0, "step after which the mean magnitude cannot decrease; 0: it always can", kNotNegative);
  list.add("moments", moments, "storage type of the two means");
  list.add("errors", errors, "storage type of the quantization errors");
  list.add("mask", mask, "automatic: do not update parameters that have never had a gradient");
  list.add("frozen", frozen, "names of parameters that are never updated, separated by commas");
  list.add("compensate_nodes", compensate_nodes,
           "not in the paper: scale the mean ratio of several nodes up to the ratio of their mean gradient");
}

void Birder::Options::check() const {
  godwit::check(quantizer != Quantizer::sign || at_worker(error_feedback),
                "birder: quantizer 'sign' needs the workers' error feedback (both or worker), but error_feedback is '",
                choices_of(error_feedback)[static_cast<size_t>(error_feedback)],
                "'; otherwise parameters without a gradient would drift by −lr every step");
}

Birder::Range Birder::share(const Range& whole, int parts, int index) {
  const int64_t length = whole.length / parts, begin = index * length;
  return {whole.begin + begin, length, std::clamp<int64_t>(whole.count - begin, 0, length)};
}

Birder::Birder(const Options& options, const Buckets& buckets, const Communicator& comm, uint64_t seed)
    : Optimizer(nullptr), options_(options), seed_(seed), all_gather_(options.collective == Collective::all_gather) {
  const int nodes = comm.topology.nodes, workers = comm.topology.workers_per_node;
  const int senders = all_gather_ ? comm.topology.world() : nodes;
  if (options.compensate_nodes) compensated_nodes_ = senders;
  const DType moments = options.moments == Moments::bf16 ? DType::bf16 : DType::f32;
  const DType errors = options.errors == Errors::int8 ? DType::u8 : DType::f32;
  const std::vector<std::string> frozen = frozen_names(options.frozen, buckets);
  for (const Bucket& bucket : buckets) {
    check(bucket.param.dtype() == DType::f32, "birder: parameters are ", bucket.param.dtype(),
          ", expected float32; use softsignsgd, the same method without quantization");
    check(bucket.padded_numel() % (32 * nodes * workers) == 0, "birder: bucket ", bucket.index, " has ",
          bucket.padded_numel(), " values, not a multiple of 32·", workers, "·", nodes,
          "; set BucketOptions::alignment to such a multiple");
    BucketState state;
    const Range whole{0, bucket.padded_numel(), bucket.numel};
    state.bucket_begin = bucket.begin;
    state.numel = bucket.numel;
    state.worker_range = all_gather_ ? whole : share(whole, workers, comm.local_rank());
    state.server_range = all_gather_ ? whole : share(state.worker_range, nodes, comm.node());
    const Shape worker_shape{state.worker_range.length};
    state.m = Tensor::zeros(worker_shape, moments);
    state.b = Tensor::zeros(worker_shape, moments);
    if (options.t0 > 0) state.b_hat = Tensor::zeros(worker_shape, moments);
    if (at_worker(options.error_feedback)) state.e = Tensor::zeros(worker_shape, errors);
    if (at_server(options.error_feedback) && senders > 1)
      state.server_e = Tensor::zeros({state.server_range.length}, errors);
    state.words = Tensor::zeros({bucket.padded_numel() / 32}, DType::u32);
    state.not_finite = Tensor::zeros({1}, DType::i64);
    if (options.mask == Mask::automatic || !frozen.empty()) make_masks(bucket, frozen, state);
    states_.push_back(std::move(state));
  }
}

void Birder::make_masks(const Bucket& bucket, const std::vector<std::string>& frozen, BucketState& state) const {
  std::vector<uint32_t> frozen_bits(static_cast<size_t>(bucket.padded_numel() / 32)), active_bits(frozen_bits);
  for (const Slot& slot : bucket.slots) {
    const bool stays = std::find(frozen.begin(), frozen.end(), slot.name) != frozen.end();
    if (!stays && options_.mask == Mask::automatic) continue;
    std::vector<uint32_t>& bits = stays ? frozen_bits : active_bits;
    for (int64_t i = slot.offset; i < slot.offset + slot.numel; ++i)
      bits[static_cast<size_t>(i / 32)] |= uint32_t{1} << (i % 32);
  }
  state.frozen = Tensor::of(frozen_bits, state.words.shape());
  state.active = Tensor::of(active_bits, state.words.shape());
}

Birder::BucketState& Birder::bucket_state(const Bucket& bucket) {
  const size_t i = static_cast<size_t>(bucket.index);
  check(i < states_.size() && states_[i].bucket_begin == bucket.begin &&
            states_[i].words.numel() * 32 == bucket.padded_numel(),
        "birder: bucket ", bucket.index, " was not passed to the constructor; use the same buckets");
  check(states_[i].words.device() == bucket.param.device(), "birder: the state is on ", states_[i].words.device(),
        ", bucket ", bucket.index, " on ", bucket.param.device(), "; construct Birder on the device of the parameters");
  return states_[i];
}

void Birder::exchange(Bucket& bucket, Communicator& comm, const StepInfo& step) {
  check(step.step >= 1 && step.step <= UINT32_MAX, "birder: step ", step.step, " is not in 1 … 2³²−1");
  all_gather_ ? exchange_all_gather(bucket, comm, step) : exchange_hierarchical(bucket, comm, step);
}

// Hierarchical-1-bit-All-Reduce: section 4 of the paper, steps (i) to (iv).
void Birder::exchange_hierarchical(Bucket& bucket, Communicator& comm, const StepInfo& step) {
  BucketState& state = bucket_state(bucket);
  const int nodes = comm.topology.nodes, workers = comm.topology.workers_per_node;
  const Shape shard_words{state.worker_range.length / 32};

  Tensor gradient = bucket.grad;
  if (workers > 1) {
    gradient = Tensor({state.worker_range.length});
    comm.intra->reduce_scatter(bucket.grad, gradient, Reduce::mean, "h1ar/intra_reduce_scatter");
  }

  Tensor signs = workers > 1 || nodes > 1 ? Tensor(shard_words, DType::u32) : state.words;
  worker_step(bucket, state, gradient, signs, static_cast<uint32_t>(comm.node()), step);

  // With one sender, the server step would return the sender's signs unchanged.
  if (nodes > 1) {
    Tensor received(shard_words, DType::u32), agreed({state.server_range.length / 32}, DType::u32);
    comm.inter->all_to_all(signs, received, "h1ar/inter_all_to_all");
    server_step(state, received, nodes, agreed, step);
    if (workers == 1) signs = state.words;
    comm.inter->all_gather(agreed, signs, "h1ar/inter_all_gather");
  }

  if (workers > 1) comm.intra->all_gather(signs, state.words, "h1ar/intra_all_gather");
}

// All-gather of all signs, for comparison: every rank is a worker, and the server of all values.
void Birder::exchange_all_gather(Bucket& bucket, Communicator& comm, const StepInfo& step) {
  BucketState& state = bucket_state(bucket);
  const int world = comm.topology.world();
  Tensor signs = world > 1 ? Tensor(state.words.shape(), DType::u32) : state.words;
  worker_step(bucket, state, bucket.grad, signs, static_cast<uint32_t>(comm.rank), step);
  if (world == 1) return;
  Tensor received({world * state.words.numel()}, DType::u32);
  comm.world->all_gather(signs, received, "naive/all_gather");
  server_step(state, received, world, state.words, step);
}

void Birder::worker_step(const Bucket& bucket, BucketState& state, const Tensor& gradient, const Tensor& words,
                         uint32_t sender, const StepInfo& step) {
  const Range& range = state.worker_range;
  const birder::QuantizerRng rng = rng_for(step, Purpose::worker_sign, sender, bucket.begin + range.begin);
  const bool short_moments = options_.moments == Moments::bf16, short_errors = options_.errors == Errors::int8;
  short_moments  ? short_errors ? worker_step<bf16, int8_t>(state, gradient, words, step, rng)
                                : worker_step<bf16, float>(state, gradient, words, step, rng)
  : short_errors ? worker_step<float, int8_t>(state, gradient, words, step, rng)
                 : worker_step<float, float>(state, gradient, words, step, rng);
  check_finite(bucket, state, step);
}

void Birder::check_finite(const Bucket& bucket, const BucketState& state, const StepInfo& step) const {
  read_on_host(state.not_finite, [&bucket, &state, step = step.step](const Tensor& values) {
    const auto key = static_cast<uint64_t>(values.data<int64_t>()[0]);
    if (key == 0) return;
    NotFinite bad = not_finite_of(key, state.worker_range.count);
    bad.index += state.worker_range.begin;
    fail_not_finite("birder", step, bucket, bad);
  });
}

template <class Moment, class Error>
void Birder::worker_step(const BucketState& state, const Tensor& gradient, const Tensor& words, const StepInfo& step,
                         const birder::QuantizerRng& rng) const {
  const birder::WorkerSettings settings{static_cast<float>(options_.beta), static_cast<float>(1 - options_.beta),
                                        static_cast<float>(options_.eps), step.step > options_.t0, compensated_nodes_};
  const birder::WorkerState<Moment, Error> kernel_state{values_of<Moment>(state.m), values_of<Moment>(state.b),
                                                 values_of<Moment>(state.b_hat), values_of<Error>(state.e),
                                                 bits_at(state.active, state.worker_range.begin)};
  on_device(gradient, [&](auto device) {
    birder::worker_step(device, data_ptr<float>(device, gradient), kernel_state, data_ptr<uint32_t>(device, words),
                        state.worker_range.count, state.worker_range.length, settings, rng,
                        reinterpret_cast<uint64_t*>(data_ptr<int64_t>(device, state.not_finite)));
  });
}

void Birder::server_step(BucketState& state, const Tensor& words, int senders, const Tensor& agreed,
                         const StepInfo& step) {
  const Range& range = state.server_range;
  const birder::QuantizerRng rng = rng_for(step, Purpose::server_sign, 0, state.bucket_begin + range.begin);
  const auto run = [&](auto* e) {
    on_device(words, [&](auto device) {
      birder::server_step(device, data_ptr<uint32_t>(device, words), senders, e, bits_at(state.active, range.begin),
                          data_ptr<uint32_t>(device, agreed), range.count, range.length, rng);
    });
  };
  options_.errors == Errors::int8 ? run(values_of<int8_t>(state.server_e)) : run(values_of<float>(state.server_e));
}

birder::QuantizerRng Birder::rng_for(const StepInfo& step, Purpose purpose, uint32_t sender, int64_t begin) const {
  return {options_.quantizer, seed_, static_cast<uint32_t>(step.step), purpose, sender, begin};
}

void Birder::apply(Bucket& bucket, const StepInfo& step) {
  BucketState& state = bucket_state(bucket);
  const uint32_t *words = bits_at(state.words, 0), *active = bits_at(state.active, 0);
  on_device(bucket.param, [&](auto device) {
    float* x = data_ptr<float>(device, bucket.param);
    const DecayTurns turns(bucket, options_.weight_decay, options_.decay_norm_and_bias);
    const auto keep = [&](double decay) { return static_cast<float>(1 - step.lr * decay); };
    birder::update(device, x, words, active, turns.begin, turns.end, turns.bounds, keep(turns.first),
                   keep(turns.second), static_cast<float>(step.lr));
    if (active)
      birder::activate(device, data_ptr<uint32_t>(device, state.active), words, bits_at(state.frozen, 0),
                       state.words.numel());
  });
}

std::vector<StateTensor> Birder::state() const {
  std::vector<StateTensor> all;
  const auto add = [&](const char* name, const BucketState& state, const Range& range, const Tensor& values,
                       bool replicated) {
    if (!values.defined() || range.count == 0) return;
    all.push_back({name, state.bucket_begin + range.begin, values.range(0, range.count), replicated});
  };
  for (const BucketState& state : states_) {
    add("m", state, state.worker_range, state.m, false);
    add("b", state, state.worker_range, state.b, false);
    add("b_hat", state, state.worker_range, state.b_hat, false);
    add("e", state, state.worker_range, state.e, false);
    add("server_e", state, state.server_range, state.server_e, all_gather_);
    if (options_.mask == Mask::automatic && state.numel > 0)
      all.push_back({"active", state.bucket_begin, state.active.range(0, (state.numel + 31) / 32), true, state.numel});
  }
  return all;
}

// The restored masks may be from a run with other frozen parameters.
void Birder::restore(const std::vector<double>&) {
  if (options_.mask != Mask::automatic) return;
  for (BucketState& state : states_) {
    const Tensor active = state.active.clone().to(kCpu), frozen = state.frozen.to(kCpu);
    for (int64_t i = 0; i < active.numel(); ++i) active.data<uint32_t>()[i] &= ~frozen.data<uint32_t>()[i];
    state.active.copy_from(active);
  }
}

const OptimizerMethod& birder_method() {
  static const OptimizerMethod method{
      .name = "birder",
      .aliases = {"binsgdm"},
      .help = "1 bit per parameter in each direction between nodes, with error feedback and without warm-up",
      .paper =
          "Peng et al., Birder: Communication-Efficient 1-bit Adaptive Optimizer for Practical Distributed DNN "
          "Training, NeurIPS 2023",
      .bytes = "d(n−1)/(4W) between nodes, 4d(m−1)/m + d(m−1)/(8m) within the node",
      .defaults = Birder::Options{},
      .communicates_itself = true,
      .make = [](const AnyOptions& options, OptimizerInputs inputs) -> std::unique_ptr<Optimizer> {
        return std::make_unique<Birder>(options.as<Birder::Options>(), inputs.buckets, inputs.comm, inputs.seed);
      },
      .notices =
          [](const AnyOptions& options, int64_t steps) {
            const int64_t t0 = options.as<Birder::Options>().t0;
            if (t0 < steps) return std::vector<std::string>();
            return std::vector{detail::concat("birder: optimizer.t0 is ", t0, ", but the run has ", steps,
                                              " steps, so the mean magnitude may decrease in every step; lower it")};
          },
  };
  return method;
}

}  // namespace godwit
