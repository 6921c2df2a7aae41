#include "optim/data_parallel.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "comm/buckets/finite.h"
#include "comm/consistency.h"
#include "comm/single_group.h"
#include "engine/clock.h"
#include "engine/context.h"
#include "engine/hash.h"
#include "engine/profile.h"
#include "engine/trace.h"

namespace godwit {
namespace {

// The ranks that have this rank's local rank, as a world with one worker per node. Each has a shard.
Communicator between_nodes(const Communicator& comm) {
  const auto alone = std::make_shared<SingleGroup>();
  return {{comm.topology.nodes, 1}, comm.node(), comm.inter, alone, comm.inter, alone, comm.stats, comm.intra};
}

std::unique_ptr<Exchange> exchange_of(const DataParallelOptions& options, const Buckets& buckets,
                                      const Communicator& comm) {
  if (options.optimizer.method().communicates_itself) {
    check(!options.make_exchange, options.optimizer.name(),
          ": communicates itself and takes no exchange; leave make_exchange empty, or use an optimizer with an "
          "exchange, such as sgdm");
    return nullptr;
  }
  if (options.make_exchange) return options.make_exchange(buckets, comm, options.seed);
  return make_exchange(options.exchange, buckets, comm, options.seed);
}

std::vector<std::shared_ptr<RoundedCopy>> rounded_copies(const Buckets& buckets, Sharding sharding) {
  std::vector<std::shared_ptr<RoundedCopy>> copies;
  for (const Bucket& bucket : buckets)
    if (sharding == Sharding::none && bucket.param.device().is_cuda() && bucket.param.dtype() == DType::f32)
      copies.push_back(RoundedCopy::of(bucket.param, bucket.numel));
  return copies;
}

Tensor owned_gradient(const Bucket& bucket) { return bucket.grad.range(bucket.owned.begin, bucket.owned.numel()); }

// An activity for the length of a scope. A trace shows it as "compress 3", for bucket 3.
class Part {
 public:
  Part(StepClock& clock, Activity activity, const Bucket* bucket)
      : clock_(clock),
        activity_(activity),
        bucket_(bucket),
        begin_(Clock::now()),
        before_(clock.enter(activity, begin_)) {}
  ~Part() {
    const auto end = Clock::now();
    clock_.enter(before_, end);
    if (Trace* const trace = context().trace.get(); trace && trace->recording()) record(*trace, end);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

 private:
  void record(Trace& trace, Clock::time_point end) const {
    TraceEvent event;
    event.name = activity_ == Activity::compression     ? "compress"
                 : activity_ == Activity::communication ? "communicate"
                                                        : "update";
    event.begin = begin_, event.end = end;
    if (bucket_) {
      event.name.append(" ").append(std::to_string(bucket_->index));
      event.bucket = bucket_->index;
      event.parameter = bucket_->slots.front().name;
      event.bytes = bucket_->param.bytes();
    }
    trace.add(std::move(event));
  }

  StepClock& clock_;
  Activity activity_;
  const Bucket* bucket_;
  Clock::time_point begin_;
  Activity before_;
};

}  // namespace

// Counts the time of f as activity `own`, except for collectives in f, which count as communication. A trace gets one
// event for each part, with the bucket unless `bucket` is null.
template <class F>
void DataParallel::timed(Activity own, const Bucket* bucket, F&& f) {
  StepClock& clock = scheduler_.clock();
  std::optional<Part> part(std::in_place, clock, own, bucket);
  const CallObserver observer(
      [&](bool begins) { part.emplace(clock, begins ? Activity::communication : own, bucket); });
  f();
}

StepTimes DataParallel::times() const {
  const StepClock& clock = scheduler_.clock();
  const auto seconds = [&](Activity activity) { return clock.seconds(activity); };
  const auto exposed = [&](Activity activity) { return clock.exposed(activity); };
  return {.compression = seconds(Activity::compression),
          .communication = comm_.world->collectives_are_kernels() ? comm_.seconds() - communicated_before_
                                                                  : seconds(Activity::communication),
          .update = seconds(Activity::update),
          .exposed_compression = exposed(Activity::compression),
          .exposed_communication = exposed(Activity::communication),
          .exposed_update = exposed(Activity::update),
          .idle = exposed(Activity::none)};
}

// Throws unless the communicator has its groups.
static Communicator& complete(Communicator& comm) {
  check(comm.world && comm.intra && comm.inter && comm.compute && comm.stats,
        "DataParallel: the communicator has no groups; run_local() and run_mpi() provide a complete one");
  return comm;
}

DataParallel::DataParallel(const std::vector<Parameter>& parameters, Communicator& comm,
                           const DataParallelOptions& options)
    : DataParallel(lay_out(parameters, options, complete(comm)), comm, options) {}

DataParallel::DataParallel(Layout layout, Communicator& comm, const DataParallelOptions& options)
    : comm_(comm),
      options_(options),
      between_(options.exchange.sharding == Sharding::hybrid ? between_nodes(comm) : comm),
      buckets_(std::move(layout.buckets)),
      parameters_(layout.own.empty()
                      ? nullptr
                      : std::make_unique<ParameterShards>(
                            buckets_, std::move(layout.own), hybrid() ? comm.intra : comm.world, scheduler_,
                            GatherOptions{options.exchange.parameter_wire, options.exchange.block_size(),
                                          options.exchange.reshard_after_forward,
                                          [this]() -> HostReads& { return *reads_; }})),
      optimizer_(
          make_optimizer(options.optimizer, {updated_buckets(), between_, options.seed,
                                             exchange_of(options, hybrid() ? updated_buckets() : buckets_, between_)})),
      communicates_itself_(options.optimizer.method().communicates_itself),
      clip_(options.clip_norm == 0 ? nullptr : std::make_unique<NormClip>(buckets_, options.clip_norm)),
      rounded_(rounded_copies(buckets_, options.exchange.sharding)),
      owned_gradients_(static_cast<size_t>(buckets_.size())),
      reads_(std::make_unique<HostReads>()),
      last_reads_(std::make_unique<HostReads>()),
      scheduler_(buckets_, [this](Bucket& bucket) { work(bucket); }, &comm) {
  check_identical(*comm.world, buckets_.layout_hash(), "the model's parameters (names, shapes, order)",
                  "build the same model on all ranks");
  check_identical(*comm.world, layout.value_hash, "the initial weights", "load the same weights on all ranks");
  if (hybrid())
    check_identical(*between_.world, updated_buckets().value_hash(),
                    "the initial weights of a shard (ranks are nodes)", "load the same weights on all nodes");
  if (parameters_) scheduler_.on_complete([this](Bucket& bucket) { parameters_->release(bucket); });
  else if (options.exchange.sharding != Sharding::none)
    shards_ =
        std::make_unique<ParameterGather>(buckets_, options.exchange.parameter_wire, options.exchange.block_size());
}

void DataParallel::work(Bucket& bucket) {
  const HostReadsScope scope(holds_gradients() ? held_ : *reads_);
  if (!holds_gradients()) {
    // Clipping checks all gradients itself.
    if (!clip_ && !optimizer_->refuses_not_finite())
      timed(Activity::compression, &bucket, [&] { check_finite(bucket); });
    return proceed(bucket);
  }
  timed(Activity::compression, &bucket, [&] {
    find_not_finite(bucket.grad, bucket.numel, [this, begin = bucket.begin](const NotFinite& bad) {
      first_bad_ = std::min(first_bad_, begin + bad.index);
    });
    if (options_.refuse_step) read_sum_of_squares(bucket.grad, [this](double sum) { squares_ += sum; });
  });
}

void DataParallel::proceed(Bucket& bucket) {
  if (!clip_ || !communicates_itself_) exchange(bucket);
  if (!clip_) return update(bucket);
  if (parameters_ && communicates_itself_) {
    timed(Activity::update, &bucket, [&] { clip_->measure(bucket); });
    timed(Activity::compression, &bucket, [&] { take_mean_of_node(bucket); });
    return buckets_.release_gradient(bucket);
  }
  timed(Activity::update, &bucket, [&] {
    if (!buckets_.on_demand_gradients()) return clip_->measure(bucket);
    clip_->measure(bucket, bucket.owned);
    if (!parameters_) owned_gradients_[static_cast<size_t>(bucket.index)] = owned_gradient(bucket).clone();
    buckets_.release_gradient(bucket);
  });
}

Tensor DataParallel::new_own_gradient(const Bucket& bucket) {
  Bucket& own = parameters_->own_of(bucket);
  own.grad = Tensor::zeros({own.padded_numel()}, own.param.dtype());
  return own.grad.range(0, own.numel);
}

void DataParallel::take_mean_of_node(Bucket& bucket) {
  mean_to_owner(bucket, new_own_gradient(bucket), *comm_.intra, "hybrid/reduce_scatter");
}

void DataParallel::exchange(Bucket& bucket) {
  const ProfileRange range("exchange", bucket.index);
  timed(Activity::compression, &bucket, [&] {
    if (!parameters_) return optimizer_->exchange(bucket, comm_, info_);
    if (!hybrid()) {
      optimizer_->exchange(bucket, comm_, info_);
      return new_own_gradient(bucket).copy_from(owned_gradient(bucket));
    }
    if (!clip_ || !communicates_itself_) take_mean_of_node(bucket);
    Bucket& own = parameters_->own_of(bucket);
    optimizer_->exchange(own, between_, info_);
    if (clip_ && !communicates_itself_) owned_gradient(bucket).copy_from(own.grad.range(0, own.numel));  // for the norm
  });
  if (parameters_ && !clip_) buckets_.release_gradient(bucket);
}

void DataParallel::update(Bucket& bucket) {
  const ProfileRange range("apply", bucket.index);
  timed(Activity::update, &bucket, [&] {
    Bucket& updated = parameters_ ? parameters_->own_of(bucket) : bucket;
    if (shards_) shards_->before_update(bucket);
    if (rounded_.empty()) optimizer_->apply(updated, info_);
    else rounded_[static_cast<size_t>(bucket.index)]->update([&] { optimizer_->apply(updated, info_); });
    if (options_.updated && optimizer_->synchronized()) options_.updated(updated, info_);
    if (shards_) shards_->after_update(bucket, *comm_.world);
    if (parameters_) updated.grad = Tensor();
  });
  buckets_.release_gradient(bucket);
}

void DataParallel::begin_step(double lr, int micro_batches) {
  check(std::isfinite(lr) && lr >= 0, options_.optimizer.name(), ": step ", info_.step + 1, ": lr is ", lr,
        ", expected a finite number of at least 0");
  check(!in_step_, options_.optimizer.name(), ": step ", info_.step, " failed or was not finished, so this ",
        "DataParallel cannot begin another step; create a new one, and load a checkpoint");
  communicated_before_ = comm_.seconds();
  if (parameters_) parameters_->begin_step();
  scheduler_.begin_step(micro_batches);
  in_step_ = true;
  info_ = {info_.step + 1, lr};
  first_bad_ = buckets_.numel();
  squares_ = 0;
}

void DataParallel::check_between_steps(std::string_view operation) {
  scheduler_.wait();  // rethrows the error of a bucket
  check(!in_step_, operation, ": step ", info_.step, " failed or was not finished; call finish_step() first, or ",
        "create a new DataParallel after an error");
}

bool DataParallel::finish_step() {
  const ProfileRange range("finish step");
  const bool taken = exchange_and_update();
  swap_reads();
  in_step_ = false;
  return taken;
}

bool DataParallel::exchange_and_update() {
  const WaitingScope waiting(scheduler_.clock());
  scheduler_.finish_step();
  const HostReadsScope scope(*reads_);
  bool taken = true;
  if (holds_gradients()) {
    timed(Activity::compression, nullptr, [&] {
      held_.run();
      taken = takes_step();
    });
    if (taken)
      for (Bucket& bucket : buckets_) proceed(bucket);
  }
  if (!taken) {
    --info_.step;
    ++skipped_;
  } else if (clip_) {
    clip_and_update();
  }
  for (Bucket& bucket : buckets_) buckets_.release_gradient(bucket);  // if the step was skipped
  buckets_.free_gradients();
  if (parameters_) parameters_->end_step();
  return taken;
}

void DataParallel::clip_and_update() {
  const bool parts = shards_gradients(options_.exchange.sharding);
  Tensor factor;
  timed(Activity::compression, nullptr, [&] {
    factor = communicates_itself_ ? clip_->factor(info_.step, *comm_.world, Reduce::mean)
             : parts ? clip_->factor(info_.step, parameters_ ? parameters_->group() : *comm_.world, Reduce::sum)
                     : clip_->factor(info_.step);
  });
  for (Bucket& bucket : buckets_) {
    if (buckets_.on_demand_gradients() && !parameters_) {
      buckets_.acquire_gradient(bucket);
      Tensor& owned = owned_gradients_[static_cast<size_t>(bucket.index)];
      owned_gradient(bucket).copy_from(owned);
      scheduler_.release(std::exchange(owned, Tensor()));
    }
    Bucket& updated = parameters_ ? parameters_->own_of(bucket) : bucket;
    scale_gradient(updated, factor);
    if (communicates_itself_) exchange(bucket);
    Tensor gradient = parameters_ ? updated.grad : Tensor();
    update(bucket);
    if (parameters_) scheduler_.release(std::move(gradient));
  }
}

bool DataParallel::step(const Var& loss, double lr) {
  begin_step(lr);
  backward(loss);
  return finish_step();
}

void DataParallel::synchronize() {
  finish_checks();
  if (synchronized()) return;
  optimizer_->synchronize(updated_buckets(), between_);
  parameters_changed();
  for (const Bucket& bucket : updated_buckets())
    if (options_.updated) options_.updated(bucket, info_);
}

void DataParallel::with_master_weights(const std::function<void()>& f) {
  finish_checks();
  if (parameters_) return parameters_->with_all(/*rounded=*/false, f);
  shards_ ? shards_->with_master_weights(buckets_, *comm_.world, f) : f();
}

void DataParallel::for_each_master_bucket(const std::function<void(Bucket&)>& f, bool store) {
  finish_checks();
  if (parameters_) return parameters_->for_each(f, store);
  with_master_weights([&] { std::for_each(buckets_.begin(), buckets_.end(), f); });
}

void DataParallel::with_all_parameters(const std::function<void()>& f, bool rounded) {
  finish_checks();
  parameters_ ? parameters_->with_all(rounded, f) : f();
}

void DataParallel::read_parameters(const std::function<void()>& f, bool rounded) {
  finish_checks();
  parameters_ ? parameters_->read(rounded, f) : f();
}

void DataParallel::read_master_weights(const std::function<void()>& f) {
  parameters_ ? read_parameters(f, /*rounded=*/false) : with_master_weights(f);
}

void DataParallel::parameters_changed() {
  if (parameters_) parameters_->release_all();
  for (size_t i = 0; i < rounded_.size(); ++i) {
    const Tensor& changed = buckets_[static_cast<int64_t>(i)].param;
    expire_rounded_copies(changed.address(), changed.bytes());
  }
}

uint64_t DataParallel::value_hash() {
  finish_checks();
  if (!parameters_) return buckets_.value_hash();
  Hash hash;
  parameters_->for_each([&](const Bucket& bucket) { hash.add(bucket.param, bucket.numel); }, false);
  return hash.value();
}

void DataParallel::gather(const Bucket& bucket, const Tensor& x) {
  if (shards_) all_gather_shards(bucket, x, *comm_.world, "parameters/gather");
}

std::string DataParallel::method_names() const {
  const std::string name = options_.optimizer.name();
  if (communicates_itself_) return name + (hybrid() ? ", hybrid" : "");
  return name + ", " + (options_.make_exchange ? "custom exchange" : options_.exchange.name()) + ", " +
         (options_.make_exchange ? "none" : options_.exchange.text("sharding"));
}

std::vector<StateTensor> DataParallel::master_state() const {
  return shards_ ? shards_->state() : std::vector<StateTensor>();
}

}  // namespace godwit
