#include "sim/calibrate/row_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "sim/calibrate/alternatives.h"
#include "sim/des/job_of_plan.h"
#include "sim/des/simulate.h"
#include "sim/plan/bucket_layout.h"

namespace lockstep {
namespace {

constexpr double kMostOneRankUs = 1e5;  // where nothing else could explain it
constexpr int kHalvings = 40;
constexpr int64_t kSteps = 3;  // buckets are rebuilt after the first

// What is simulated: a machine, and how many times as long as the plan's its compute takes.
struct Guess {
  MachineModel machine;
  double compute = 1;
};

// Of a row that the table is asked about.
struct Place {
  int64_t ranks = 1;
  std::optional<double> cap_mb;
  std::optional<int64_t> passes;
};

class Simulator {
 public:
  explicit Simulator(const RunPlan& plan) : plan_(plan) {}

  // Of layers by timer: the scenario says how long they take.
  bool is_emulated() const { return !plan_.layer_times.empty(); }
  bool has_cap() const { return lockstep::has_cap(plan_); }

  Expected<PlannedJob> job(const Guess& guess, const Place& place) const {
    MachineModel machine = guess.machine;
    RunPlan plan = with_compute(plan_, guess.compute, &machine);
    if (place.passes) plan.scenario.accumulate_steps = *place.passes;
    SimulatedAs as;
    as.ranks = place.ranks;
    as.steps = kSteps;
    if (place.cap_mb) as.cap_mb = place.cap_mb;
    return job_of_plan(plan, machine, as);
  }

  bool crosses_hosts(const MachineModel& machine, int64_t ranks) const {
    CostModel cost = machine.cost;
    cost.algorithm = algorithm_of(plan_.scenario, machine);
    return goes_across(cost, ranks);
  }

  // Infinite where the run does not come to its end, or its numbers are out of range: too long.
  double step_ms(const Guess& guess, const Place& place) const {
    auto planned = job(guess, place);
    if (!planned) return std::numeric_limits<double>::infinity();
    planned.value().job.collective_ns = 0;
    const auto run = simulate(planned.value().job, {});
    if (!run || run.value().failure) return std::numeric_limits<double>::infinity();
    return numbers_of(planned.value().job, run.value()).step_ms;
  }

 private:
  const RunPlan& plan_;
};

void slow_links(double factor, MachineModel* machine) {
  slow_link(factor, &machine->cost.link);
  slow_link(factor, &machine->cost.across);
}

void apply(const RowExplanation& explanation, Guess* guess) {
  guess->machine.bucket_ns = std::llround(explanation.bucket_us * 1e3);
  guess->machine.rank_spread = explanation.spread;
  switch (explanation.excess) {
    case Excess::reducer:
      guess->machine.parameter_ns += std::llround(explanation.value * 1e3);
      return;
    case Excess::every_step:
      guess->machine.sync_ns += std::llround(explanation.value * 1e6);
      return;
    case Excess::link:
      slow_links(explanation.value, &guess->machine);
      return;
    case Excess::compute:
      guess->compute *= explanation.value;
      guess->machine.sync_ns += std::llround(explanation.beside_ms * 1e6);
      slow_links(explanation.links, &guess->machine);
      return;
  }
}

// The least value from which on a step takes `ms`. Steps never get shorter with it.
std::optional<double> value_giving(double ms, double least, double most,
                                   const std::function<double(double)>& step_ms) {
  if (step_ms(least) >= ms || step_ms(most) < ms) return std::nullopt;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (least + most) / 2;
    (step_ms(middle) < ms ? least : most) = middle;
  }
  return most;
}

class RowFitter {
 public:
  RowFitter(const RunPlan& plan, const MachineModel& machine, const PublishedTable& table)
      : simulator_(plan), table_(table), base_{machine} {
    for (const PublishedRow& row : table.rows) {
      if (row.fitted) fitted_ = row;
      if (!row.synchronized) alone_ = row;
    }
  }

  Expected<RowFit> fit() {
    if (InputErrors errors = check(); !errors.empty()) return errors;
    if (InputErrors errors = fit_compute(); !errors.empty()) return errors;
    explain();
    if (std::none_of(fit_.explanations.begin(), fit_.explanations.end(),
                     [](const RowExplanation& one) { return one.links == 1; }))
      return unexplained();
    take_the_middle();
    predict();
    fill_accuracy();
    return std::move(fit_);
  }

 private:
  static InputError refused(const std::string& message, const std::string& allowed) {
    InputError error;
    error.message = message;
    error.allowed = allowed;
    return error;
  }

  static Place place_of(const PublishedRow& row) { return {row.ranks, row.cap_mb, row.passes}; }

  InputErrors check() {
    for (const PublishedRow& row : table_.rows) {
      if (row.cap_mb && !simulator_.has_cap())
        return {refused(fmt::format("a row of {} ranks has a bucket_cap_mb, but the scenario's "
                                    "reducer has no cap",
                                    row.ranks),
                        "rows without it, or a reducer with buckets")};
      const auto planned = simulator_.job(base_, place_of(row));
      if (!planned) return planned.errors();
      for (const std::string& note : planned.value().notes)
        if (std::find(fit_.notes.begin(), fit_.notes.end(), note) == fit_.notes.end())
          fit_.notes.push_back(note);
    }
    return {};
  }

  // So that one rank without a reducer takes what its row says.
  InputErrors fit_compute() {
    if (!alone_) return {};
    const auto planned = simulator_.job(base_, place_of(*alone_));
    if (!planned) return planned.errors();
    const Job& job = planned.value().job;
    const double beside = static_cast<double>(job.load_ns + job.optimizer_ns) * 1e-6;
    const double compute =
        static_cast<double>(job.passes * (job.forward_ns + job.backward_ns)) * 1e-6;
    if (alone_->ms <= beside || compute <= 0)
      return {refused(fmt::format("a step of compute alone takes {} ms, and {:.3f} ms of it are "
                                  "the machine's load_ms and optimizer_ms",
                                  alone_->ms, beside),
                      "a longer step")};
    base_.compute = (alone_->ms - beside) / compute;
    return {};
  }

  std::vector<double> bucket_costs() const {
    const double said = static_cast<double>(base_.machine.bucket_ns) * 1e-3;
    if (said > 0) return {said};
    return {0, kMostBucketUs};
  }

  // Of one rank there is no slowest.
  std::vector<double> spreads() const {
    if (base_.machine.rank_spread > 0) return {base_.machine.rank_spread};
    const auto has_several = [](const PublishedRow& row) { return row.ranks > 1; };
    if (std::none_of(table_.rows.begin(), table_.rows.end(), has_several)) return {0};
    return {0, 2 * kRankSpread};
  }

  double row_ms(const RowExplanation& explanation) const {
    Guess guess = base_;
    apply(explanation, &guess);
    return simulator_.step_ms(guess, place_of(fitted_));
  }

  void explain() {
    for (const double bucket_us : bucket_costs()) {
      if (!alone_) continue;
      add(Excess::reducer, bucket_us, 0, fitted_.ranks == 1 ? kMostOneRankUs : kMostParameterUs);
      if (fitted_.ranks == 1) continue;
      add(Excess::every_step, bucket_us, 0, fitted_.ms);
      if (base_.machine.cost.tables.empty()) add(Excess::link, bucket_us, 1, kMostSlower);
    }
    if (!fit_.explanations.empty()) return;
    if (alone_)
      fit_.notes.push_back(fmt::format(
          "the row takes {} ms, no more than compute alone and its collectives: compute is taken "
          "from the row instead",
          fitted_.ms));
    for (const double bucket_us : bucket_costs())
      for (const double links : {1.0, 1 / kMostSlower, kUnseenSlower})
        if (links == 1 || (fitted_.ranks > 1 && base_.machine.cost.tables.empty()))
          add(Excess::compute, bucket_us, 1e-6, 1e6, links);
    if (base_.machine.sync_ns > 0) return;
    for (const double bucket_us : bucket_costs())
      add(Excess::compute, bucket_us, 1e-6, 1e6, 1, kMostBeside * fitted_.ms);
  }

  void add(Excess excess, double bucket_us, double least, double most, double links = 1,
           double beside_ms = 0) {
    for (const double spread : spreads()) {
      RowExplanation one{excess, bucket_us, 0, links, spread, beside_ms};
      const auto value = value_giving(fitted_.ms, least, most, [&](double guess) {
        one.value = guess;
        return row_ms(one);
      });
      one.value = value.value_or(0);
      if (value) fit_.explanations.push_back(one);
    }
  }

  InputErrors unexplained() const {
    Guess least = base_;
    least.compute *= 1e-6;
    return {refused(
        fmt::format("the row of {} ranks takes {} ms, and its collectives alone {:.2f} ms",
                    fitted_.ranks, fitted_.ms, simulator_.step_ms(least, place_of(fitted_))),
        "faster links (--machine), or another row")};
  }

  bool has(Excess excess) const {
    return std::any_of(fit_.explanations.begin(), fit_.explanations.end(),
                       [&](const RowExplanation& one) { return one.excess == excess; });
  }

  // Of what the explanations have, between the least and the most.
  double middle_of(double RowExplanation::*value) const {
    const auto [least, most] =
        std::minmax_element(fit_.explanations.begin(), fit_.explanations.end(),
                            [&](const auto& a, const auto& b) { return a.*value < b.*value; });
    return ((*least).*value + (*most).*value) / 2;
  }

  // Half of what links explain, of the rest half on the reducer, and what is left then on every
  // step, with half of what a bucket may cost and of how far ranks may be spread.
  void take_the_middle() {
    middle_ = base_;
    const double bucket_us = middle_of(&RowExplanation::bucket_us);
    middle_.machine.bucket_ns = std::llround(bucket_us * 1e3);
    middle_.machine.rank_spread = middle_of(&RowExplanation::spread);
    if (has(Excess::compute)) {
      middle_.compute *= solved({Excess::compute, bucket_us, 0}, 1e-6, 1e6).value_or(1);
      return;
    }
    middle_.machine.rank_spread = std::min(middle_.machine.rank_spread, spread_that_fits());
    if (has(Excess::link))
      slow_links(std::sqrt(solved({Excess::link, bucket_us, 0}, 1, kMostSlower).value_or(1)),
                 &middle_.machine);
    const double parameter_us =
        solved({Excess::reducer, bucket_us, 0}, 0, kMostOneRankUs).value_or(0);
    if (fitted_.ranks == 1) {
      middle_.machine.parameter_ns += std::llround(parameter_us * 1e3);
      return;
    }
    middle_.machine.parameter_ns +=
        std::llround(std::min(parameter_us / 2, kMostParameterUs) * 1e3);
    middle_.machine.sync_ns += std::llround(
        std::max(0.0, fitted_.ms - simulator_.step_ms(middle_, place_of(fitted_))) * 1e6);
  }

  // Half of what would make the row by itself.
  double spread_that_fits() const {
    if (base_.machine.rank_spread > 0 || fitted_.ranks == 1) return middle_.machine.rank_spread;
    const auto most = value_giving(fitted_.ms, 0, kMostRankSpread, [&](double spread) {
      Guess tried = middle_;
      tried.machine.rank_spread = spread;
      return simulator_.step_ms(tried, place_of(fitted_));
    });
    return most.value_or(0) / 2;
  }

  std::optional<double> solved(RowExplanation explanation, double least, double most) const {
    return value_giving(fitted_.ms, least, most, [&](double guess) {
      Guess tried = middle_;
      explanation.value = guess;
      explanation.spread = middle_.machine.rank_spread;
      apply(explanation, &tried);
      return simulator_.step_ms(tried, place_of(fitted_));
    });
  }

  void predict() {
    for (const PublishedRow& row : table_.rows) {
      if (!row.synchronized) continue;
      PredictedRow predicted{row};
      predicted.ms = simulator_.step_ms(middle_, place_of(row));
      predicted.low = predicted.high = predicted.ms;
      for (const RowExplanation& explanation : fit_.explanations) widen(explanation, &predicted);
      if (!row.fitted) {
        predicted.low = std::min(predicted.low, predicted.ms * (1 - kLeastError));
        predicted.high = std::max(predicted.high, predicted.ms * (1 + kLeastError));
      }
      fit_.rows.push_back(predicted);
    }
    fit_.machine = middle_.machine;
    Place alone = place_of(fitted_);  // as compute is before it waits for the slowest
    alone.ranks = 1;
    const auto planned = simulator_.job(middle_, alone);
    fit_.forward_ms = static_cast<double>(planned.value().job.forward_ns) * 1e-6;
    fit_.backward_ms = static_cast<double>(planned.value().job.backward_ns) * 1e-6;
    fit_.emulated = simulator_.is_emulated();
    note_unseen();
    if (fit_.emulated) return;
    fit_.machine.forward_ms = fit_.forward_ms;
    fit_.machine.backward_ms = fit_.backward_ms;
  }

  bool crosses_hosts(int64_t ranks) const {
    return base_.machine.cost.tables.empty() && simulator_.crosses_hosts(base_.machine, ranks);
  }
  bool is_unseen(int64_t ranks) const {
    if (!base_.machine.cost.tables.empty()) return false;
    return fitted_.ranks == 1 ? ranks > 1 : crosses_hosts(ranks) && !crosses_hosts(fitted_.ranks);
  }

  void note_unseen() {
    if (std::none_of(table_.rows.begin(), table_.rows.end(),
                     [&](const PublishedRow& row) { return is_unseen(row.ranks); }))
      return;
    fit_.notes.push_back(fmt::format(
        "the fitted row is of one {}: the other intervals allow links{} {} times slower than the "
        "machine says",
        fitted_.ranks == 1 ? "rank" : "host", fitted_.ranks == 1 ? "" : " between hosts",
        kUnseenSlower));
  }

  void slow_unseen(MachineModel* machine) const {
    slow_link(kUnseenSlower, &machine->cost.across);
    if (fitted_.ranks == 1) slow_link(kUnseenSlower, &machine->cost.link);
  }

  // Under the explanation, with the machine's links or, where the fitted row does not go over them,
  // with slower ones.
  std::vector<double> steps_ms(const RowExplanation& explanation, const PublishedRow& row) const {
    Guess guess = base_;
    apply(explanation, &guess);
    std::vector<double> steps = {simulator_.step_ms(guess, place_of(row))};
    if (!is_unseen(row.ranks)) return steps;
    slow_unseen(&guess.machine);
    steps.push_back(simulator_.step_ms(guess, place_of(row)));
    return steps;
  }

  // The explanations for a machine file, where other ranks and caps are asked about.
  void keep_alternatives() {
    for (const RowExplanation& explanation : fit_.explanations) {
      Guess guess = base_;
      apply(explanation, &guess);
      keep_alternative(guess,
                       explanation.excess == Excess::every_step || explanation.beside_ms > 0);
      if (!base_.machine.cost.tables.empty()) continue;
      slow_unseen(&guess.machine);  // changes nothing of what one host's ranks do
      if (fitted_.ranks == 1 || !crosses_hosts(fitted_.ranks)) keep_alternative(guess, false);
    }
  }

  void keep_alternative(const Guess& guess, bool grows) {
    const auto slower = [](const LinkCost& link, const LinkCost& than) {
      if (than.beta_fs_per_byte == 0) return 1.0;
      return static_cast<double>(link.beta_fs_per_byte) /
             static_cast<double>(than.beta_fs_per_byte);
    };
    const CostModel &cost = guess.machine.cost, &middle = middle_.machine.cost;
    fit_.machine.alternatives.push_back(
        {.compute = guess.compute / middle_.compute,
         .link_slower = slower(cost.link, middle.link),
         .across_slower = slower(cost.across, middle.across),
         .bucket_ns = guess.machine.bucket_ns,
         .parameter_ns = guess.machine.parameter_ns,
         .sync_ns = guess.machine.sync_ns,
         .rank_spread = guess.machine.rank_spread,
         .sync_ranks = grows && fitted_.ranks > 1 ? fitted_.ranks : 0});
  }

  void widen(const RowExplanation& explanation, PredictedRow* predicted) const {
    const std::vector<double> steps = steps_ms(explanation, predicted->row);
    double low = steps.front(), high = steps.back();
    const double beside =
        explanation.excess == Excess::every_step ? explanation.value : explanation.beside_ms;
    if (beside > 0 && predicted->row.ranks > 1 && fitted_.ranks > 1) {
      const Growth growth = growth_of(predicted->row.ranks, fitted_.ranks);
      low -= beside * (1 - growth.least);
      high += beside * (growth.most - 1);
    }
    predicted->low = std::min(predicted->low, low);
    predicted->high = std::max(predicted->high, high);
  }

  // Of the table's rows the widest interval, and of two caps the widest one of their ratio.
  void fill_accuracy() {
    Accuracy accuracy;
    accuracy.runs = 1;
    if (fit_.emulated) {
      accuracy.forward_ms = fit_.forward_ms;
      accuracy.backward_ms = fit_.backward_ms;
    }
    accuracy.step_error = kLeastError;
    for (const PredictedRow& row : fit_.rows)
      accuracy.step_error =
          std::max({accuracy.step_error, row.high / row.ms - 1, 1 - row.low / row.ms});
    std::optional<double> cap_error;
    for (const PredictedRow& a : fit_.rows)
      for (const PredictedRow& b : fit_.rows)
        if (a.row.ranks == b.row.ranks && a.row.passes == b.row.passes &&
            a.row.cap_mb != b.row.cap_mb)
          cap_error = std::max(cap_error.value_or(0), ratio_error(a, b));
    accuracy.cap_error = cap_error;
    fit_.machine.accuracy = accuracy;
    keep_alternatives();
  }

  // Of what the explanations make of the ratio, the farthest from what is predicted.
  double ratio_error(const PredictedRow& a, const PredictedRow& b) const {
    double most = kLeastError;
    for (const RowExplanation& explanation : fit_.explanations) {
      const std::vector<double> of_a = steps_ms(explanation, a.row);
      const std::vector<double> of_b = steps_ms(explanation, b.row);
      for (size_t i = 0; i < of_a.size(); ++i)
        most = std::max(most, std::fabs(of_a[i] / of_b[i] / (a.ms / b.ms) - 1));
    }
    return most;
  }

  const Simulator simulator_;
  const PublishedTable& table_;
  Guess base_, middle_;
  PublishedRow fitted_;
  std::optional<PublishedRow> alone_;
  RowFit fit_;
};

}  // namespace

std::string to_text(const RowExplanation& explanation) {
  const std::string spread = explanation.spread > 0 ? fmt::format(", ranks are spread by {:.1f} %",
                                                                  explanation.spread * 100)
                                                    : "";
  const std::string bucket = fmt::format(", a bucket {:.0f} us", explanation.bucket_us) + spread;
  switch (explanation.excess) {
    case Excess::reducer:
      return fmt::format("the reducer takes {:.1f} us a parameter", explanation.value) + bucket;
    case Excess::every_step:
      return fmt::format("a step of several ranks takes {:.2f} ms more", explanation.value) +
             bucket;
    case Excess::link:
      return fmt::format("links are {:.2f} times slower", explanation.value) + bucket;
    case Excess::compute:
      return fmt::format("compute takes {:.4g} times as long as the scenario says",
                         explanation.value) +
             (explanation.links == 1 ? ""
              : explanation.links > 1
                  ? fmt::format(", links are {:.0f} times slower", explanation.links)
                  : fmt::format(", links are {:.0f} times faster", 1 / explanation.links)) +
             (explanation.beside_ms > 0
                  ? fmt::format(", a step of several ranks takes {:.2f} ms more",
                                explanation.beside_ms)
                  : "") +
             bucket;
  }
  return "";
}

Expected<RowFit> fit_row(const RunPlan& plan, const MachineModel& machine,
                         const PublishedTable& table) {
  return RowFitter(plan, machine, table).fit();
}

}  // namespace lockstep
