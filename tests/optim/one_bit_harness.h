// Trains with an optimizer that communicates itself, on ranks that are threads, and collects the state of every rank.
// Also contains the methods' parameter servers in plain code, in float32 for bit-exact comparison or in float64.
#pragma once
#include <algorithm>
#include <limits>

#include "optim/clip.h"
#include "optim/sync_schedule.h"
#include "tests/comm/exchange/sign_server.h"
#include "tests/optim/harness.h"
#include "tests/optim/support.h"

namespace godwit::test {

using Vector = std::vector<double>;
constexpr double kNobody = -1e30;  // marks state that a rank does not hold

struct EachRank {
  std::vector<std::vector<Vector>> x;                   // [rank][step - 1], by global element
  std::map<std::pair<std::string, int>, Vector> state;  // final state, by name and rank
  std::vector<std::map<std::string, CommCount>> stats;  // per rank
  std::vector<std::vector<bool>> synchronized;          // [rank][step - 1]
};

inline double rate_of(double lr, int64_t step) {
  return static_cast<float>(lr * (1 - 0.25 * static_cast<double>(step % 3)));
}
inline double rate_of(const Plan& plan, int64_t step) { return rate_of(plan.config.number("lr"), step); }

inline EachRank train_each(const Plan& plan, const std::function<bool(int64_t)>& synchronize_after = nullptr) {
  EachRank run;
  std::mutex mutex;
  const auto world = static_cast<size_t>(plan.topology.world());
  run.x.resize(world);
  run.stats.resize(world);
  run.synchronized.resize(world);
  run_local(plan.topology,
            [&](Communicator& comm) {
              std::vector<Parameter> parameters;
              for (size_t i = 0; i < plan.sizes.size(); ++i)
                parameters.push_back({"p" + std::to_string(i), Var(Tensor::zeros({plan.sizes[i]}), true),
                                      plan.decay.empty() || plan.decay[i]});
              Buckets buckets(parameters, {plan.bucket_bytes, plan.bucket_bytes, 32 * plan.topology.world()});
              for (Bucket& b : buckets)
                for (int64_t i = 0; i < b.numel; ++i)
                  b.param.data<float>()[i] = static_cast<float>(start_value(b.begin + i));
              const bool own = plan.config.method().communicates_itself;
              const auto optimizer = make_optimizer(
                  plan.config,
                  {buckets, comm, plan.seed, own ? nullptr : make_exchange(plan.exchange, buckets, comm, 1)});
              const auto rank = static_cast<size_t>(comm.rank);
              for (int64_t step = 1; step <= plan.steps; ++step) {
                const StepInfo info{step, rate_of(plan, step)};
                for (Bucket& b : buckets) {
                  for (int64_t i = 0; i < b.numel; ++i)
                    b.grad.data<float>()[i] = static_cast<float>(
                        plan.gradient(comm.rank, step, b.begin + i, static_cast<double>(b.param.data<float>()[i])));
                  optimizer->exchange(b, comm, info);
                }
                for (Bucket& b : buckets) optimizer->apply(b, info);
                if (synchronize_after && synchronize_after(step)) optimizer->synchronize(buckets, comm);
                Vector x;
                for (const Bucket& b : buckets) {
                  for (int64_t i = 0; i < b.numel; ++i) x.push_back(static_cast<double>(b.param.data<float>()[i]));
                  for (int64_t i = b.numel; i < b.padded_numel(); ++i) EXPECT_EQ(b.param.item(i), 0) << "padding not 0";
                }
                run.x[rank].push_back(std::move(x));
                run.synchronized[rank].push_back(optimizer->synchronized());
              }
              std::lock_guard lock(mutex);
              run.stats[rank] = comm.stats->phases();
              for (const StateTensor& part : optimizer->state()) {
                Vector& values = run.state[{part.name, comm.rank}];
                values.resize(static_cast<size_t>(plan.d()), kNobody);
                for (int64_t i = 0; i < part.values.numel(); ++i)
                  values.at(static_cast<size_t>(part.begin + i)) = part.values.item(i);
              }
            },
            {.threads_per_rank = plan.threads});
  return run;
}

// Options of the methods below.
struct Settings {
  explicit Settings(const OptimizerConfig& config) {
    const auto read = [&]<class T>(const char* option, T& value) {
      if (!config.has(option)) return;
      if constexpr (std::is_same_v<T, bool>) value = config.text(option) == "true";
      else value = static_cast<T>(config.number(option));
    };
    read("lr", lr), read("weight_decay", weight_decay), read("decay_norm_and_bias", decay_norm_and_bias);
    read("beta1", beta1), read("beta2", beta2), read("eps", eps);
    read("bias_correction", bias_correction), read("refresh_variance", refresh_variance),
        read("keep_local_momentum", keep_local_momentum);
    read("kappa", kappa), read("warmup_steps", warmup_steps), read("block_size", block_size),
        read("update_limit", update_limit);
    read("min_coeff", min_coeff), read("max_coeff", max_coeff), read("coeff_beta", coeff_beta);
    read("factor_min", factor_min), read("factor_max", factor_max), read("factor_threshold", factor_threshold);
    root_mean_square = config.has("sign_scale") && config.text("sign_scale") == "l2_rms";
  }
  double lr = 0, weight_decay = 0, beta1 = 0, beta2 = 0, eps = 0;
  bool decay_norm_and_bias = true, bias_correction = false, keep_local_momentum = false, root_mean_square = false;
  bool refresh_variance = false;
  int64_t warmup_steps = std::numeric_limits<int64_t>::max();  // infinite for lamb, which never compresses
  int64_t block_size = 4096;
  double update_limit = 0, kappa = 0;
  double min_coeff = 0, max_coeff = 0, coeff_beta = 0, factor_min = 0, factor_max = 0, factor_threshold = 0;
};

// Common part of the parameter servers: options, initial values, gradients and means.
template <class T>
class Server {
 public:
  using Values = std::vector<T>;
  explicit Server(const Plan& plan)
      : plan_(plan),
        settings_(plan.config),
        world_(plan.topology.world()),
        d_(static_cast<size_t>(plan.d())),
        signs(world_, plan.d(), reference::blocks_of(plan.sizes, settings_.block_size),
              reference::blocks_of(plan.sizes, settings_.block_size), settings_.root_mean_square) {
    for (size_t j = 0; j < d_; ++j) start_.push_back(static_cast<T>(start_value(static_cast<int64_t>(j))));
    const Settings& config = settings_;
    beta1 = T(config.beta1), o1 = T(1 - config.beta1), beta2 = T(config.beta2), o2 = T(1 - config.beta2);
    eps = T(config.eps);
    if (config.update_limit > 0) limit = T(config.update_limit);
    int64_t at = plan.d();
    decayed_.assign(d_, true);
    for (size_t i = 0; i < plan.sizes.size(); ++i) {
      at -= plan.sizes[i];
      if (plan.decay.empty() || plan.decay[i] || config.decay_norm_and_bias) continue;
      std::fill_n(decayed_.begin() + at, plan.sizes[i], false);
    }
  }

 protected:
  Values gradient(int rank, int64_t t, const Values& x) const {
    Values g;
    for (size_t j = 0; j < d_; ++j)
      g.push_back(static_cast<T>(
          static_cast<float>(plan_.gradient(rank, t, static_cast<int64_t>(j), static_cast<double>(x[j])))));
    return g;
  }
  Values mean(const std::vector<Values>& all) const {
    Values sum(d_);
    for (size_t j = 0; j < d_; ++j) {
      for (const Values& one : all) sum[j] += one[j];
      sum[j] /= static_cast<T>(all.size());
    }
    return sum;
  }
  double rate(int64_t t) const { return rate_of(settings_.lr, t); }
  T keep(int64_t t, size_t j) const { return decayed_[j] ? T(1 - rate(t) * settings_.weight_decay) : T(1); }
  static void average(T& m, T beta, T o, T g) { m = (beta * m) + (o * g); }

  Plan plan_;
  Settings settings_;
  int world_;
  size_t d_;
  Values start_;
  std::vector<bool> decayed_;
  // u, clamped to ±most.
  static T limited(T u, T most) { return std::min(std::max(u, -most), most); }

  T beta1, o1, beta2, o2, eps, limit = std::numeric_limits<T>::infinity();

 public:
  reference::SignServer<T> signs;
  const reference::SignServer<float>* of = nullptr;  // a float64 server uses the signs of this float32 server
  double slack = 0;
};

template <class T>
class OneBitAdamServer : public Server<T> {
 public:
  using typename Server<T>::Values;
  explicit OneBitAdamServer(const Plan& plan)
      : Server<T>(plan), x(this->start_), m(this->d_), v(this->d_), local(static_cast<size_t>(this->world_), m) {}

  void step(int64_t t) {
    const Settings& config = this->settings_;
    const int64_t frozen = std::min<int64_t>(t, config.warmup_steps);
    const double lr = this->rate(t);
    const bool corrected = config.bias_correction;
    const T rate = T(corrected ? lr / (1 - std::pow(config.beta1, static_cast<double>(t))) : lr);
    const T root = T(corrected ? std::sqrt(1 - std::pow(config.beta2, static_cast<double>(frozen))) : 1);
    std::vector<Values> g;
    for (int rank = 0; rank < this->world_; ++rank) g.push_back(this->gradient(rank, t, x));
    Values used = m;
    if (t <= config.warmup_steps) {
      const Values all = this->mean(g);
      for (size_t j = 0; j < this->d_; ++j) {
        this->average(m[j], this->beta1, this->o1, all[j]);
        this->average(v[j], this->beta2, this->o2, all[j] * all[j]);
      }
      local.assign(local.size(), m);
      used = m;
    } else {
      std::vector<Values> z = config.keep_local_momentum ? local : std::vector<Values>(local.size(), m);
      for (size_t i = 0; i < z.size(); ++i)
        for (size_t j = 0; j < this->d_; ++j) this->average(z[i][j], this->beta1, this->o1, g[i][j]);
      local = z;
      used = this->signs.mean(z, this->of, this->slack);
      for (size_t j = 0; j < this->d_; ++j)
        if (v[j] == 0) used[j] = 0;
      m = used;
    }
    // The limit applies to the corrected m̂/√v̂. `rate` contains the correction of m.
    const double m_correction = corrected ? 1 - std::pow(config.beta1, static_cast<double>(t)) : 1;
    const bool limits = t > config.warmup_steps && config.update_limit > 0;
    const T most = limits ? T(config.update_limit * m_correction) : std::numeric_limits<T>::infinity();
    for (size_t j = 0; j < this->d_; ++j)
      x[j] = (this->keep(t, j) * x[j]) - (rate * this->limited(used[j] / (std::sqrt(v[j]) / root + this->eps), most));
  }
  Values x, m, v;
  std::vector<Values> local;
};

template <class T>
class ZeroOneAdamServer : public Server<T> {
 public:
  using typename Server<T>::Values;
  explicit ZeroOneAdamServer(const Plan& plan)
      : Server<T>(plan),
        x(static_cast<size_t>(this->world_), this->start_),
        m(x.size(), Values(this->d_)),
        u(m),
        late(m),
        common(this->start_),
        v(this->d_),
        schedule_(plan.config.as<ZeroOneAdam::Options>()) {}

  void step(int64_t t, bool sync_too = false) {
    const SyncSchedule::Step set = schedule_.at(t);
    const double lr = this->rate(t);
    std::vector<Values> g;
    for (int rank = 0; rank < this->world_; ++rank) g.push_back(this->gradient(rank, t, x[static_cast<size_t>(rank)]));
    if (set.variance) {
      // Adam's v̂ if ĝ² of all steps since the previous change had been equal to ĝ² of this step.
      const Values all = this->mean(g);
      const double b = this->settings_.beta2, since = static_cast<double>(t - last_change_);
      const double most = std::max(2 / this->settings_.kappa, since / static_cast<double>(t));
      const double adam = std::min((1 - std::pow(b, since)) / (1 - std::pow(b, static_cast<double>(t))), most);
      const double weight = this->settings_.bias_correction ? adam : 1 - b;
      const double kept = this->settings_.bias_correction ? 1 - adam : b;
      for (size_t j = 0; j < this->d_; ++j) this->average(v[j], T(kept), T(weight), all[j] * all[j]);
      last_change_ = t;
    }
    // After T_v: each rank's second moment where v is 0. Refreshes compute v from it.
    const int64_t after = t - schedule_.last_variance();
    const bool frozen = this->settings_.refresh_variance && after > 0;
    for (size_t i = 0; frozen && i < x.size(); ++i)
      for (size_t j = 0; j < this->d_; ++j)
        if (v[j] == 0) this->average(late[i][j], this->beta2, this->o2, g[i][j] * g[i][j]);
    if (frozen && set.refresh) {
      std::vector<Values> roots = late;
      for (Values& of_rank : roots)
        for (T& value : of_rank) value = std::sqrt(value);
      const Values all = this->mean(roots);
      const T correction = T(1 / (1 - std::pow(this->settings_.beta2, static_cast<double>(after))));
      for (size_t j = 0; j < this->d_; ++j) {
        if (v[j] != 0) continue;
        v[j] = correction * (all[j] * all[j]);
        for (size_t i = 0; i < x.size(); ++i) late[i][j] = this->signs.e[i][j] = 0;
      }
    }
    for (size_t i = 0; i < x.size(); ++i)
      for (size_t j = 0; j < this->d_; ++j) {
        this->average(m[i][j], this->beta1, this->o1, g[i][j]);
        const T change = v[j] == 0 ? 0 : T(lr) * this->limited(m[i][j] / std::sqrt(v[j] + this->eps), this->limit);
        x[i][j] = (this->keep(t, j) * x[i][j]) - change;
        u[i][j] = u[i][j] + T(lr) * m[i][j];
      }
    rate_sum_ += lr;
    product_ *= 1 - lr * this->settings_.weight_decay;
    mean_x = this->mean(x), local_x = x;
    // Where v is 0, the errors are not used.
    const auto replace_errors = [&](bool by_late) {
      for (size_t i = 0; frozen && i < x.size(); ++i)
        for (size_t j = 0; j < this->d_; ++j)
          if (v[j] == 0) this->signs.e[i][j] = by_late ? late[i][j] : 0;
    };
    replace_errors(true);
    if (!set.sync && !sync_too) return;
    replace_errors(false);
    Values agreed = this->signs.mean(u, this->of, this->slack);
    replace_errors(true);
    for (size_t j = 0; j < this->d_; ++j) {
      if (v[j] == 0) agreed[j] = 0;
      if (v[j] == 0 && frozen) this->signs.server_e[j] = 0;
      const T change = this->limited(agreed[j] / std::sqrt(v[j] + this->eps), T(rate_sum_) * this->limit);
      common[j] = ((this->decayed_[j] ? T(product_) : T(1)) * common[j]) - change;
      for (size_t i = 0; i < x.size(); ++i) {
        m[i][j] = agreed[j] / T(rate_sum_);
        x[i][j] = common[j];
        u[i][j] = 0;
      }
    }
    rate_sum_ = 0, product_ = 1;
  }
  std::vector<Values> x, m, u, late;
  Values common, v;
  Values mean_x;                // mean over the ranks, before a synchronization
  std::vector<Values> local_x;  // of each rank, before a synchronization

 private:
  SyncSchedule schedule_;
  double rate_sum_ = 0, product_ = 1;
  int64_t last_change_ = 0;  // step of the last change of v
};

// Computes norms with the engine's sums, which clip_test verifies.
template <class T>
class OneBitLambServer : public Server<T> {
 public:
  using typename Server<T>::Values;
  explicit OneBitLambServer(const Plan& plan)
      : Server<T>(plan), x(this->start_), m(this->d_), v(this->d_), fresh(this->d_) {
    coefficient.assign(plan.sizes.size(), 0);
    factor.assign(plan.sizes.size(), 1);
  }

  void step(int64_t t) {
    const Settings& config = this->settings_;
    const bool warm = t <= config.warmup_steps;
    std::vector<Values> g;
    for (int rank = 0; rank < this->world_; ++rank) g.push_back(this->gradient(rank, t, x));
    Values agreed;
    if (warm) {
      agreed = this->mean(g);
    } else {
      std::vector<Values> z(g.size(), m);
      for (size_t i = 0; i < z.size(); ++i)
        for (size_t j = 0; j < this->d_; ++j) this->average(z[i][j], this->beta1, this->o1, g[i][j]);
      agreed = this->signs.mean(z, this->of, this->slack);
    }
    int64_t end = this->plan_.d();
    for (size_t p = 0; p < this->plan_.sizes.size(); ++p) {
      const int64_t begin = end - this->plan_.sizes[p];
      step_of(t, p, agreed, static_cast<size_t>(begin), static_cast<size_t>(end), warm);
      end = begin;
    }
  }
  Values x, m, v, fresh, coefficient, factor;

 private:
  static double norm(const Values& y) {
    return std::sqrt(sum_of_squares(Tensor::of(y, {static_cast<int64_t>(y.size())})));
  }

  void step_of(int64_t t, size_t p, const Values& agreed, size_t begin, size_t end, bool warm) {
    const Settings& config = this->settings_;
    const double decay = this->decayed_[begin] ? config.weight_decay : 0;
    Values r, ratio, of_x(x.begin() + static_cast<int64_t>(begin), x.begin() + static_cast<int64_t>(end));
    T largest = 0;
    const double time = static_cast<double>(t);
    const bool corrected = config.bias_correction;
    const T by = T(corrected ? 1 - std::pow(config.beta1, time) : 1);
    const T root_by = T(corrected ? std::sqrt(1 - std::pow(config.beta2, time)) : 1);
    const T frozen_by =
        T(corrected ? std::sqrt(1 - std::pow(config.beta2, static_cast<double>(config.warmup_steps))) : 1);
    for (size_t j = begin; j < end; ++j) {
      T a = agreed[j];
      if (warm) {
        this->average(m[j], this->beta1, this->o1, a);
        this->average(v[j], this->beta2, this->o2, a * a);
        ratio.push_back((m[j] / by) / (std::sqrt(v[j]) / root_by + this->eps));
      } else {
        if (v[j] == 0) a = 0;
        const T back = (a - (this->beta1 * m[j])) / this->o1;
        this->average(fresh[j], this->beta2, this->o2, back * back);
        m[j] = a;
        const T root = std::sqrt(v[j]) / frozen_by + this->eps;
        ratio.push_back(this->limited(a / by / root, this->limit));
        largest = std::max(largest, root / (std::sqrt(fresh[j]) / root_by + this->eps));
      }
      r.push_back(ratio.back() + (T(decay) * x[j]));
    }
    double rate = this->rate(t);
    if (warm) {
      const double length = norm(of_x), step_length = norm(r);
      const bool defined = length > 0 && step_length > 0;
      const double c = defined ? std::clamp(length / step_length, config.min_coeff, config.max_coeff) : 1;
      rate *= c;
      coefficient[p] = T(config.coeff_beta) * coefficient[p] + (1 - T(config.coeff_beta)) * T(c);
      if (t == config.warmup_steps) {
        std::copy(v.begin() + static_cast<int64_t>(begin), v.begin() + static_cast<int64_t>(end),
                  fresh.begin() + static_cast<int64_t>(begin));
      }
    } else {
      double f = static_cast<double>(largest);
      if (decay > 0) {
        const double before = norm(ratio), after = norm(r), q = after > 0 ? std::min(1.0, before / after) : 1;
        f = f * q + 1 - q;
      }
      const double last = static_cast<double>(factor[p]);
      f = std::clamp(f, config.factor_min, config.factor_max);
      factor[p] = T(std::clamp(f, last * (1 - config.factor_threshold), last * (1 + config.factor_threshold)));
      const double mean = static_cast<double>(coefficient[p]) /
                          (1 - std::pow(config.coeff_beta, static_cast<double>(config.warmup_steps)));
      rate = rate * static_cast<double>(factor[p]) * mean;
    }
    for (size_t j = begin; j < end; ++j) x[j] = x[j] - (T(rate) * r[j - begin]);
  }
};

// A small model, with options that make each mechanism act in a few steps.
inline Plan plan_of(const char* name, const Topology& topology, int64_t steps = 200) {
  Plan plan;
  plan.config = name;
  plan.config.set("lr", 2e-3).set("weight_decay", 0.1).set("decay_norm_and_bias", false);
  if (plan.config.name() != "lamb")
    plan.config.set("block_size", 32).set("warmup_steps", 20).set("dense_wire", "f32").set("update_limit", 0.5);
  set_if_known(plan.config, "warmup", "fixed");
  set_if_known(plan.config, "refresh_variance", false);
  if (plan.config.name() == "zero_one_adam")
    plan.config.set("intervals", "doubling").set("doubling_steps", 40).set("max_interval", 4).set("kappa", 3);
  plan.decay = {true, true, false, true};
  plan.topology = topology;
  plan.steps = steps;
  return plan;
}

template <class T>
Vector wide(const std::vector<T>& values) {
  return Vector(values.begin(), values.end());
}

// Largest |a − b| over all elements.
template <class A, class B>
double apart(const std::vector<A>& a, const std::vector<B>& b) {
  double most = 0;
  for (size_t j = 0; j < a.size(); ++j)
    most = std::max(most, std::abs(static_cast<double>(a[j]) - static_cast<double>(b[j])));
  return most;
}

}  // namespace godwit::test
