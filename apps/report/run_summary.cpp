#include "apps/report/run_summary.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "apps/report/progress.h"
#include "comm/gather.h"
#include "comm/host_tensor.h"
#include "engine/json-inl.h"

namespace godwit::apps {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

json own_account(const Communicator& comm, const DataParallel& replica) {
  json own = {{"state", json::array()}, {"phases", json::array()}};
  const auto add = [&](const char* owner, const std::vector<StateTensor>& parts) {
    std::vector<std::string> names;
    for (const StateTensor& part : parts)
      if (std::find(names.begin(), names.end(), part.name) == names.end()) names.push_back(part.name);
    for (const std::string& name : names) {
      int64_t bytes = 0;
      for (const StateTensor& part : parts)
        if (part.name == name) bytes += part.values.bytes();
      own["state"].push_back({{"owner", owner}, {"name", name}, {"bytes", bytes}});
    }
  };
  add("optimizer", replica.optimizer().state());
  add("exchange", replica.optimizer().exchange_state());
  add("owner", replica.master_state());
  for (const auto& [name, count] : comm.stats->phases())
    own["phases"].push_back({{"name", name},
                             {"calls", count.calls},
                             {"intra", count.bytes_intra},
                             {"inter", count.bytes_inter},
                             {"seconds", count.seconds}});
  return own;
}

template <class T, class Match>
T& find_or_add(std::vector<T>& list, const Match& match, T fresh) {
  const auto found = std::find_if(list.begin(), list.end(), match);
  return found != list.end() ? *found : list.emplace_back(std::move(fresh));
}

void add_rank(RunSummary& all, size_t rank, size_t world, const json& own) {
  for (const json& s : own["state"]) {
    const std::string owner = s["owner"], name = s["name"];
    RunSummary::State& state = find_or_add(
        all.state, [&](const auto& x) { return x.owner == owner && x.name == name; },
        RunSummary::State{owner, name, std::vector<int64_t>(world)});
    state.bytes[rank] = s["bytes"];
  }
  for (const json& p : own["phases"]) {
    const std::string name = p["name"];
    RunSummary::Phase& phase = find_or_add(
        all.phases, [&](const auto& x) { return x.name == name; }, RunSummary::Phase{.name = name});
    phase.calls = std::max<int64_t>(phase.calls, p["calls"]);
    phase.bytes_intra += p["intra"].get<int64_t>();
    phase.bytes_inter += p["inter"].get<int64_t>();
    phase.seconds += p["seconds"].get<double>() / static_cast<double>(world);
  }
}

template <class... Args>
std::string row(const char* format, Args... args) {
  char text[200];
  std::snprintf(text, sizeof text, format, args...);
  return text;
}

std::string mean_bytes(double bytes, size_t ranks) { return human_bytes(bytes / static_cast<double>(ranks)); }

double sum(const std::vector<int64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), 0.0,
                         [](double s, int64_t b) { return s + static_cast<double>(b); });
}

}  // namespace

RunSummary gather_run_summary(Communicator& comm, const DataParallel& replica, int64_t steps, const TimeSplit& times) {
  const json own = own_account(comm, replica);
  RunSummary all;
  all.topology = comm.topology;
  all.parameters = replica.buckets().numel();
  all.steps = steps;
  all.skipped = replica.skipped();
  const auto ranks = gather_texts(*comm.world, {dump_json(own)}, "accounting");
  for (size_t rank = 0; rank < ranks.size(); ++rank) add_rank(all, rank, ranks.size(), parse_json(ranks[rank].at(0)));
  std::sort(all.phases.begin(), all.phases.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  std::vector<double> own_times;
  for (const auto& [name, part] : kTimeParts) own_times.push_back(times.*part);
  const Tensor means = cpu_tensor(own_times);
  comm.world->all_reduce(means, Reduce::mean, "accounting");
  for (size_t i = 0; i < kTimeParts.size(); ++i) all.step.*kTimeParts[i].second = means.item(static_cast<int64_t>(i));
  all.step = all.step / static_cast<double>(std::max<int64_t>(steps, 1));
  return all;
}

double RunSummary::bytes_per_parameter(const State& part) const {
  return sum(part.bytes) / static_cast<double>(part.bytes.size()) / static_cast<double>(parameters);
}

std::string RunSummary::table() const {
  std::string text = row("%-36s %14s %18s\n", "state of a worker, mean", "bytes", "bytes/parameter");
  double total = 0, per_parameter = 0;
  for (const State& part : state) {
    text +=
        row("  %-34s %14s %18.3f\n", (part.owner == "optimizer" ? part.name : part.owner + ": " + part.name).c_str(),
            mean_bytes(sum(part.bytes), part.bytes.size()).c_str(), bytes_per_parameter(part));
    total += sum(part.bytes) / static_cast<double>(part.bytes.size());
    per_parameter += bytes_per_parameter(part);
  }
  text += row("  %-34s %14s %18.3f\n", "all", human_bytes(total).c_str(), per_parameter);
  text += row("%-36s %14s %18s %18s %12s\n", "sent by all workers", "calls/worker", "within nodes", "between nodes",
              "s/worker");
  for (const Phase& phase : phases)
    text += row("  %-34s %14lld %18s %18s %12.3f\n", phase.name.c_str(), static_cast<long long>(phase.calls),
                human_bytes(static_cast<double>(phase.bytes_intra)).c_str(),
                human_bytes(static_cast<double>(phase.bytes_inter)).c_str(), phase.seconds);
  text += row("per step: %.1f ms = %.1f forward + %.1f backward + %.1f data + %.1f exchange + %.1f idle + %.1f other\n",
              1e3 * step.total, 1e3 * step.forward, 1e3 * step.backward, 1e3 * step.data_wait, 1e3 * step.exposed(),
              1e3 * step.idle, 1e3 * step.other());
  text += row("exchange per step: %.1f ms (compression %.1f, communication %.1f, update %.1f), ", 1e3 * step.exchange(),
              1e3 * step.compression, 1e3 * step.communication, 1e3 * step.update);
  text += row("exposed: %.1f ms (%.1f, %.1f, %.1f)", 1e3 * step.exposed(), 1e3 * step.exposed_compression,
              1e3 * step.exposed_communication, 1e3 * step.exposed_update);
  return text;
}

std::string RunSummary::json() const {
  ordered_json root = {{"nodes", topology.nodes},
                       {"workers_per_node", topology.workers_per_node},
                       {"parameters", parameters},
                       {"steps", steps},
                       {"skipped", skipped},
                       {"state", ordered_json::array()},
                       {"phases", ordered_json::array()},
                       {"step_s", {{"computation", step.computation()}, {"waiting", step.waiting()}}}};
  for (const auto& [name, part] : kTimeParts) root["step_s"][name] = step.*part;
  root["step_s"]["other"] = step.other();
  for (const State& part : state)
    root["state"].push_back({{"of", part.owner},
                             {"name", part.name},
                             {"bytes_per_parameter", bytes_per_parameter(part)},
                             {"bytes_of_ranks", part.bytes}});
  for (const Phase& phase : phases)
    root["phases"].push_back({{"phase", phase.name},
                              {"calls", phase.calls},
                              {"bytes_intra", phase.bytes_intra},
                              {"bytes_inter", phase.bytes_inter},
                              {"seconds", phase.seconds}});
  return dump_json(root, 1);
}

}  // namespace godwit::apps
