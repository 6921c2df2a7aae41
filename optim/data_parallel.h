// DataParallel: one rank's replica of a model in training: its buckets, its optimizer, and the scheduler that connects
// them.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/buckets/parameter_shards.h"
#include "comm/buckets/scheduler.h"
#include "comm/buckets/sharding.h"
#include "comm/exchange/method.h"
#include "engine/host_reads.h"
#include "engine/rounded_copy.h"
#include "optim/clip.h"
#include "optim/method.h"

namespace godwit {

// Optimizer, exchange and limits of a DataParallel.
struct DataParallelOptions {
  OptimizerConfig optimizer = "birder";  // optimizer and its options
  ExchangeConfig exchange = "dense";     // mean of the gradients; must be "dense" if the optimizer communicates itself
  // Creates a custom exchange that replaces `exchange`; see docs/extending.md.
  std::function<std::unique_ptr<Exchange>(const Buckets&, const Communicator&, uint64_t seed)> make_exchange = {};
  BucketOptions buckets = {};  // alignment and on_demand_gradients are not read
  uint64_t seed = 1;           // seed of stochastic quantizers
  // Limit of the norm of the whole mean gradient. 0: no limit. With a limit, parameters are updated after all gradients
  // are complete. An optimizer that communicates itself has no mean gradient. In this case, all ranks scale their
  // gradients before sending (with hybrid, their shards of the node's mean gradient), by one factor that is computed
  // from the mean of the ranks' squared norms.
  double clip_norm = 0;
  // Effect of a non-finite gradient of any rank. false: an error that names the parameter. true: all ranks skip the
  // step before any state changes. Nothing is then exchanged before all gradients are complete, and each rank sends 8
  // bytes to each other rank.
  bool skip_not_finite = false;
  // Returns the reason to skip a step, or "" to take the step. Called on every rank with the same norm, √(mean over the
  // ranks of Σg²). All ranks must make the same decision. As with skip_not_finite, nothing is exchanged before all
  // gradients are complete; each rank sends 16 bytes to each other rank.
  std::function<std::string(double gradient_norm)> refuse_step = {};
  // Called after each update of a bucket of updated_buckets() that leaves the replicas identical. The call is made on
  // the communication thread, or on the computing thread if the update needed all gradients. synchronize() calls it for
  // all buckets. With sharding, only the rank's shard is updated at that time.
  std::function<void(const Bucket&, const StepInfo&)> updated = {};
};

// Throws if the optimizer, its options or the exchange do not support options.exchange.sharding. Also throws if the
// optimizer communicates itself and the exchange is not "dense".
void check_sharding(const DataParallelOptions& options);

// Times of a step, in seconds. Compression, communication and update run on the communication thread. They overlap with
// the backward pass, unless they need all gradients. The exposed times are the parts of these three in which the
// computing thread waited: after the backward pass, or earlier for memory of on-demand gradients or sharded parameters.
struct StepTimes {
  double compression = 0;    // exchange excluding the calls of groups; checks of the gradients
  // Calls of groups, including waits for other ranks. With NCCL, this is the GPU's time for the collectives that it
  // finished since begin_step(), some of which belong to the previous step. The exposed time is measured on the host.
  double communication = 0;
  double update = 0;         // apply() and the callback after it
  double exposed_compression = 0, exposed_communication = 0, exposed_update = 0;  // see above
  double idle = 0;  // the computing thread waited and none of the three ran: threads of the rank waited for a core

  // Total waiting time of the computing thread.
  double waiting() const { return exposed_compression + exposed_communication + exposed_update + idle; }
};

// One rank's replica of a model in training: buckets, optimizer and scheduler.
//   DataParallel replica(net.parameters(), comm);
//   replica.step(loss_of(net, batch));          // or begin_step(), backward() once per micro-batch, finish_step()
// After an error in a step, some parameters may have been updated, and begin_step() throws: create a new DataParallel,
// and load a checkpoint.
class DataParallel {
 public:
  // Collective. Binds the parameters to buckets. Throws if the ranks' parameters differ. `comm` must outlive this
  // object. If several DataParallel share a parameter, only the newest can take steps. Only one DataParallel of a
  // communicator may be in a step at a time. With sharding zero3 and hybrid, the parameters lose their values when this
  // object is destroyed.
  DataParallel(const std::vector<Parameter>& parameters, Communicator& comm, const DataParallelOptions& options = {});

  bool step(const Var& loss) { return step(loss, options_.optimizer.number("lr")); }  // step() with the optimizer's lr
  bool step(const Var& loss, double lr);  // begin_step(), backward(), finish_step()
  // Begins a step of `micro_batches` calls of backward(). Throws if lr is negative or not finite.
  void begin_step(double lr, int micro_batches = 1);
  void backward(const Var& loss) { scheduler_.backward(loss); }  // adds the gradients of loss / micro_batches
  // Returns false if the step was skipped. On a GPU, an error that a check of the step finds, such as a non-finite
  // gradient, is thrown by finish_step() of the next step, or by finish_checks().
  bool finish_step();
  // Collective: waits until a GPU has finished all steps, and throws the errors that their checks find. Must be called
  // before the results of the last step are used. The functions below that read parameters call it. No effect on the
  // CPU.
  void finish_checks();
  // To be called after an error in a step. Runs the outstanding checks of this and of the previous step, and throws the
  // first error found, which may be the cause.
  void find_cause();
  // To be called within a step: calls f with x on the CPU: immediately for a CPU tensor, otherwise before the checks of
  // the step.
  void read_with_checks(const Tensor& x, HostReads::Read f);

  int64_t steps() const { return info_.step; }                        // number of steps begun, excluding skipped ones
  int64_t skipped() const { return skipped_; }                        // number of skipped steps
  void set_skipped(int64_t steps) { skipped_ = steps; }               // after load_checkpoint(), which also sets it
  const std::string& skip_reason() const { return skip_reason_; }     // for the last skipped step; equal on all ranks
  StepTimes times() const;                                            // times of the last step, or of this one so far
  // Gradient norm of the last step before clipping; 0 without clip_norm.
  double gradient_norm() const { return clip_ ? clip_->norm() : 0; }
  Buckets& buckets() { return buckets_; }                             // buckets of parameters and gradients
  const Buckets& buckets() const { return buckets_; }
  // Buckets that this rank updates: its shards if parameters are sharded (zero3, hybrid), otherwise buckets().
  Buckets& updated_buckets() { return parameters_ ? parameters_->own() : buckets_; }
  const Optimizer& optimizer() const { return *optimizer_; }  // the optimizer, with its state
  // Throws within a step, and after a failed step. `operation`: beginning of the message.
  void check_between_steps(std::string_view operation);
  std::vector<double> counters() const;  // for checkpoints (optim/checkpoint.h): numbers that are not state tensors
  void restore(std::vector<double> counters);                 // sets the counters from a checkpoint
  std::string method_names() const;                           // optimizer, exchange and sharding: "adamw, dense, none"
  const Scheduler& scheduler() const { return scheduler_; }   // gives unused parameters and overlapped buckets
  // False after a local step, which leaves the replicas different.
  bool synchronized() const { return optimizer_->synchronized(); }
  // Collective: makes the replicas identical after local steps. Must be called before evaluating or saving.
  void synchronize();
  void check_replicas();  // collective: throws if parameters or shared optimizer state differ between ranks
  // Collective: throws if shared optimizer state differs between the ranks that keep it. The message contains `when`
  // and `remedy`.
  void check_shared_state(const std::string& when, const std::string& remedy = "");
  // Collective: calls f while the parameters hold their float32 master weights, to save or replace the weights.
  void with_master_weights(const std::function<void()>& f);
  // Like with_master_weights(), one bucket after the other, so that sharded parameters need memory for only one bucket.
  // store: f replaces values.
  void for_each_master_bucket(const std::function<void(Bucket&)>& f, bool store = false);
  // Collective: calls f while every rank holds all parameters, even if they are sharded. rounded: the values as sent by
  // parameter_wire; applies only to zero3 and hybrid.
  void with_all_parameters(const std::function<void()>& f, bool rounded = true);
  // Collective: calls f, which reads parameters to evaluate, generate or save, and may differ between ranks. Sharded
  // parameters are gathered when operations read them, one bucket at a time (ParameterShards::read()). f must not
  // communicate, and must read values only through Var::value(). rounded: as in with_all_parameters().
  void read_parameters(const std::function<void()>& f, bool rounded = true);
  void read_master_weights(const std::function<void()>& f);  // read_parameters() with the float32 master weights
  // Must be called after values of updated_buckets() were changed outside of steps. On a GPU, it must also be called
  // after a custom kernel has written parameters. Writes by Tensor's functions, collectives and update_each() are
  // detected.
  void parameters_changed();
  // Collective: hash of all parameters; with zero3 and hybrid, before rounding. Equal on all ranks while
  // synchronized().
  uint64_t value_hash();
  Sharding sharding() const { return options_.exchange.sharding; }  // kind of sharding
  // Collective: all-gathers x [padded], in which every rank has its shard of the bucket. Has an effect only with zero1
  // and zero2, because otherwise x already has all values or belongs to a shard.
  void gather(const Bucket& bucket, const Tensor& x);
  // This rank's float32 master weights, if ranks compute with rounded weights.
  std::vector<StateTensor> master_state() const;

 private:
  template <class F>
  void timed(Activity own, const Bucket* bucket, F&& f);
  bool exchange_and_update();    // ends a step; returns false if the step was skipped
  void work(Bucket& bucket);     // called when the bucket's gradient is complete
  void proceed(Bucket& bucket);  // called when the bucket may be exchanged
  // Sharded parameters: gives the rank's shard of the bucket a new gradient, which is returned without its padding.
  Tensor new_own_gradient(const Bucket& bucket);
  void take_mean_of_node(Bucket& bucket);  // hybrid: collective in the node; the mean becomes the shard's gradient
  void exchange(Bucket& bucket);
  void update(Bucket& bucket);
  void clip_and_update();
  bool hybrid() const { return options_.exchange.sharding == Sharding::hybrid; }
  bool holds_gradients() const { return options_.skip_not_finite || options_.refuse_step; }
  void check_finite(const Bucket& bucket);
  void swap_reads();  // ends a step: runs the functions of last_reads_, which then takes the reads of this step
  bool takes_step();  // collective, if gradients are held until the end of the step; sets skip_reason_

  // Buckets. With sharded parameters, also the rank's shards and the hash of the initial values.
  struct Layout {
    Buckets buckets;
    std::vector<Bucket> own = {};
    uint64_t value_hash = 0;
  };
  static Layout lay_out(const std::vector<Parameter>& parameters, const DataParallelOptions& options,
                        const Communicator& comm);
  DataParallel(Layout layout, Communicator& comm, const DataParallelOptions& options);

  Communicator& comm_;
  DataParallelOptions options_;
  Communicator between_;  // hybrid: the ranks that have the same shard; the exchange is between them
  Buckets buckets_;
  std::unique_ptr<ParameterShards> parameters_;  // null if every rank has all parameters
  std::unique_ptr<Optimizer> optimizer_;
  bool communicates_itself_;
  bool in_step_ = false;  // from begin_step() to the end of finish_step(); remains true after an error
  std::unique_ptr<NormClip> clip_;  // null if there is no limit
  std::vector<std::shared_ptr<RoundedCopy>> rounded_;  // by bucket; empty on the CPU, or with any sharding
  std::vector<Tensor> owned_gradients_;  // by bucket, from exchange to update; for clipping with on-demand gradients
  std::unique_ptr<ParameterGather> shards_;  // null if parameters are not sharded
  StepInfo info_{0, 0};
  int64_t first_bad_ = 0;  // global offset of the first non-finite gradient in this step; numel if all are finite
  double communicated_before_ = 0;  // comm_.seconds() at the beginning of the step
  double squares_ = 0;     // Σg² of this rank's gradients, for refuse_step
  int64_t skipped_ = 0;
  std::string skip_reason_;
  HostReads held_;  // reads of this step that decide whether it is taken; used only if gradients are held
  std::unique_ptr<HostReads> reads_, last_reads_;  // reads of this step, and of the previous one
  Scheduler scheduler_;  // declared last, so that its thread ends before the other members are destroyed
};

}  // namespace godwit
