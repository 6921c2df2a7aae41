#include "apps/train/main.h"

#include <fcntl.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <iostream>
#include <sstream>
#include <thread>

#include "apps/config/build_identity.h"
#include "apps/config/command_line.h"
#include "apps/config/pick_sharding.h"
#include "apps/report/progress.h"
#include "apps/train/continued_run.h"
#include "apps/train/interrupt.h"
#include "apps/train/measured_options.h"
#include "apps/train/run_consistency.h"
#include "apps/train/trainer.h"
#include "comm/failure.h"
#include "comm/transport/launcher.h"
#include "comm/transport/local.h"
#include "comm/transport/mpi.h"
#include "engine/context.h"
#include "engine/excerpt.h"
#include "engine/trace.h"
#include "optim/checkpoint.h"

namespace godwit::apps {
namespace {

// Escapes control characters, except the line breaks between errors of several ranks.
std::string shown(const std::string& text) {
  constexpr size_t kLongest = 4000;
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);)
    result.append(result.empty() ? "" : "\n").append(excerpt(line, kLongest));
  return result;
}

// Loads the data once per process, shared by ranks that are threads. Returns false if the run was interrupted.
bool train(const Program& program, const ConfigPtr& config) {
  // Under a launcher, output is forwarded in pieces or written to a file, so no bar is drawn.
  using Style = Progress::Style;
  Progress progress(stdout, uses_mpi(*config) ? Style::lines : Style::automatic);
  const Topology topology{config->nodes, config->workers_per_node};
  const auto timeout = std::chrono::milliseconds(std::llround(1000 * config->timeout_s));
  const Placement placement{config->device, config->share_gpu, config->nccl};
  std::atomic<bool> stopped{false};
  const auto run = [&](const TaskMaker& make, Communicator& comm) {
    Context arithmetic = context();
    arithmetic.tf32 = config->tf32;
    arithmetic.dnn_timing = config->dnn_timing;
    if (config->trace) {
      arithmetic.trace = std::make_shared<Trace>();
      arithmetic.trace->name_thread("compute");
    }
    const ContextGuard guard(std::move(arithmetic));  // inherited by threads that the task and the trainer start
    const std::unique_ptr<Task> task = [&] {
      // Each worker computes the initial values of its shards only. Measurements need all values.
      const nn::DeferParameters deferred(shards_parameters(config->exchange.sharding) && !measures(*config));
      return make(comm);
    }();
    if (!task) return;
    Trainer trainer(program, *config, *task, comm);
    trainer.run(progress);
    if (trainer.stopped()) stopped = true;
  };
  if (uses_mpi(*config)) {
    const auto body = [&](Communicator& comm) {
      config->nodes = comm.topology.nodes;
      config->workers_per_node = comm.topology.workers_per_node;
      check_same_build(*comm.world, build_identity());
      pick_sharding(*config);
      check_same_config(*comm.world, *config);
      const TaskMaker make = [&] {
        const auto busy = comm.world->control()->busy();  // a host may read its data much more slowly than another
        return program.load(config, comm.rank == 0 ? &progress : nullptr);
      }();
      run(make, comm);
    };
    const auto note = [&](const std::string& line) { progress.line(line); };
    run_mpi(topology, body, {timeout, config->threads, note, placement});
  } else {
    const TaskMaker make = program.load(config, &progress);
    run_local(topology, [&](Communicator& comm) { run(make, comm); }, {timeout, config->threads, placement});
  }
  return !stopped;
}

// Opens closed standard streams. Otherwise the next opened file would get their descriptor and receive their output.
void open_standard_streams() {
  for (int fd = 0; fd < 3; ++fd)
    if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
}

// Before the start, all ranks usually find the same error. Rank 0 reports it and exits, after which the launcher ends
// the other ranks. A rank still alive after the delay reports its own error.
void wait_for_rank_0(int rank) {
  if (rank != 0) std::this_thread::sleep_for(std::chrono::seconds(3));
}

}  // namespace

int run_program(const Program& program, int argc, char** argv) {
  open_standard_streams();
  catch_checkpoint_signal();
  int failure = 2, rank = 0;
  try {
    handle_signals_in_thread();
    const std::optional<Launcher> launched = launcher();
    if (launched) rank = launched->rank;
    std::ostream silent(nullptr);
    const ConfigPtr config = parse_command_line(program, argc, argv, rank == 0 ? std::cout : silent);
    check(std::cout.flush().good(), "standard output cannot be written");
    if (config) {
      check_same_network(*config);
      const int workers = uses_mpi(*config) ? launched->world : config->nodes * config->workers_per_node;
      const std::string kept = keep_samples_per_step(*config, workers);
      keep_picked_options(*config);
      for (const std::string& notice : {kept, notice_of_changes(*config)})
        if (!notice.empty()) config->notices.push_back(notice);
    }
    failure = 1;
    signal(SIGXFSZ, SIG_IGN);  // writing beyond the file-size limit then fails with an error
    signal(SIGPIPE, SIG_IGN);  // writing to a closed pipe then fails with an error
    // interrupted() is 0 if the signal reached another rank only
    if (config && !train(program, config)) return 128 + (interrupted() ? interrupted() : SIGINT);
    return 0;
  } catch (const PeerFailed&) {
    return failure;
  } catch (const std::exception& error) {
    const bool before_start = failure == 2;
    if (dynamic_cast<const CheckpointFailed*>(&error)) failure = 1;  // a disk that a restart may find again
    if (before_start) wait_for_rank_0(rank);
    std::fflush(stdout);
    const std::string own = before_start && rank != 0 ? detail::concat("rank ", rank, ": ") : std::string();
    std::cerr << program.name << ": " << own << shown(text_of(std::current_exception())) << std::endl;
    return failure;
  }
}

}  // namespace godwit::apps
