#include "sim/calibrate/row_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "sim/calibrate/alternatives.h"
#include "sim/calibrate/row_doubts.h"
#include "sim/des/job_of_plan.h"

namespace lockstep {
namespace {

constexpr double kMostOneRankUs = 1e5;  // where nothing else could explain it

class RowFitter {
 public:
  RowFitter(const RunPlan& plan, const MachineModel& machine, const PublishedTable& table,
            const RowProgress& progress)
      : simulator_(plan), table_(table), progress_(progress), base_{machine} {
    for (const PublishedRow& row : table.rows) {
      if (row.fitted) fitted_ = row;
      if (!row.synchronized) alone_ = row;
    }
  }

  Expected<RowFit> fit() {
    if (InputErrors errors = check(); !errors.empty()) return errors;
    if (InputErrors errors = fit_compute(); !errors.empty()) return errors;
    explain();
    if (!is_explained()) return unexplained();
    fit_.warnings = doubts_of(table_);
    doubt_links();
    take_the_middle();
    predict();
    fill_accuracy();
    return std::move(fit_);
  }

 private:
  void tell(const std::string& what) const {
    if (progress_) progress_(what);
  }

  static InputError refused(const std::string& message, const std::string& allowed) {
    InputError error;
    error.message = message;
    error.allowed = allowed;
    return error;
  }

  static Place place_of(const PublishedRow& row) { return {row.ranks, row.cap_mb, row.passes}; }

  InputErrors check() {
    for (const PublishedRow& row : table_.rows) {
      tell("reading the rows");
      if (row.cap_mb && !simulator_.has_cap())
        return {refused(fmt::format("a row of {} ranks has a bucket_cap_mb, but the scenario's "
                                    "reducer has no cap",
                                    row.ranks),
                        "rows without it, or a reducer with buckets")};
      const auto planned = simulator_.job(base_, place_of(row));
      if (!planned) return planned.errors();
      for (const std::string& note : planned.value().notes) note_once(note);
      for (const std::string& note : unused_keys(base_.machine, planned.value().job.cost.algorithm))
        note_once(note);
    }
    return {};
  }

  void note_once(const std::string& note) {
    if (std::find(fit_.notes.begin(), fit_.notes.end(), note) == fit_.notes.end())
      fit_.notes.push_back(note);
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

  bool is_explained() const {
    return std::any_of(fit_.explanations.begin(), fit_.explanations.end(),
                       [](const RowExplanation& one) { return one.as_said(); });
  }

  // No row has a network: of one rank, or of what was measured.
  bool has_links() const { return fitted_.ranks > 1 && base_.machine.cost.tables.empty(); }

  void explain() {
    if (alone_) explain_excess();
    if (is_explained()) return;
    fit_.explanations.clear();
    if (alone_)
      fit_.notes.push_back(fmt::format(
          "the row takes {} ms, no more than compute alone and its collectives: compute is taken "
          "from the row instead",
          fitted_.ms));
    explain_compute();
  }

  // Latencies as they are said, and those at both ends of what they may be.
  std::vector<double> latencies() const {
    if (!has_links()) return {1};
    return {1, 1 / kLatencyRange, kLatencyRange};
  }

  void explain_excess() {
    for (const double bucket_us : bucket_costs()) {
      for (const double messages : latencies()) {
        const RowExplanation one{.bucket_us = bucket_us, .messages = messages};
        add(Excess::reducer, one, 0, fitted_.ranks == 1 ? kMostOneRankUs : kMostParameterUs);
        if (fitted_.ranks == 1) continue;
        add(Excess::every_step, one, 0, fitted_.ms);
        if (has_links()) add(Excess::link, one, 1, kMostSlower);
      }
      if (has_links()) add(Excess::latency, {.bucket_us = bucket_us}, 1, kLatencyRange);
    }
  }

  void explain_compute() {
    const double slower = has_links() ? most_links_slower() : 1;
    for (const double bucket_us : bucket_costs()) {
      const auto with = [&](double links, double messages) {
        return RowExplanation{.bucket_us = bucket_us, .links = links, .messages = messages};
      };
      for (const double messages : latencies()) add_compute(with(1, messages));
      if (!has_links()) continue;
      for (const double messages : {1.0, 1 / kLatencyRange})
        add_compute(with(1 / kMostSlower, messages));
      for (const double messages : {1.0, kLatencyRange}) add_compute(with(slower, messages));
    }
    if (base_.machine.sync_ns > 0) return;
    for (const double bucket_us : bucket_costs())
      add_compute({.bucket_us = bucket_us, .beside_ms = kMostBeside * fitted_.ms});
  }

  void add_compute(const RowExplanation& one) { add(Excess::compute, one, 1e-6, 1e6); }

  // By how much links may be slower than the machine says, of those that the row goes over: by no
  // more than leaves something for compute.
  double most_links_slower() const {
    const CostModel& cost = base_.machine.cost;
    double slower =
        unseen_slower(crosses_hosts(fitted_.ranks) ? cost.across : cost.link, fitted_.ranks);
    while (slower > kUnseenSlower && !leaves_compute(slower)) slower /= 2;
    return slower;
  }

  bool leaves_compute(double links_slower) const {
    Guess least = base_;
    apply({.excess = Excess::compute, .value = 1e-6, .links = links_slower}, &least);
    return simulator_.step_ms(least, place_of(fitted_)) < fitted_.ms;
  }

  void add(Excess excess, RowExplanation one, double least, double most) {
    one.excess = excess;
    for (const double spread : spreads()) {
      tell(fmt::format("fitting explanation {}", fit_.explanations.size() + 1));
      one.spread = spread;
      const auto value = value_giving(fitted_.ms, least, most, [&](double guess) {
        one.value = guess;
        return row_ms(one);
      });
      one.value = value.value_or(0);
      if (value) fit_.explanations.push_back(one);
    }
  }

  // Rows that no compute leaves time for, on links as the machine says.
  void doubt_links() {
    Guess least = base_;
    least.compute *= 1e-6;
    for (const PublishedRow& row : table_.rows) {
      if (row.ranks == 1) continue;
      const double least_ms = simulator_.step_ms(least, place_of(row));
      if (row.ms >= least_ms * (1 - 2 * kLeastError)) continue;
      InputError& warning = fit_.warnings.emplace_back(row.place);
      warning.message = fmt::format(
          "a step of {} ranks takes {:.6g} ms, and its collectives alone {:.6g} ms on the machine: "
          "its links are slower than those of the row",
          row.ranks, row.ms, least_ms);
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
    return std::any_of(
        fit_.explanations.begin(), fit_.explanations.end(),
        [&](const RowExplanation& one) { return one.excess == excess && one.as_said(); });
  }

  // Of what the explanations have, between the least and the most.
  double middle_of(double RowExplanation::*value) const {
    double least = std::numeric_limits<double>::infinity(), most = 0;
    for (const RowExplanation& one : fit_.explanations) {
      if (!one.as_said()) continue;
      least = std::min(least, one.*value);
      most = std::max(most, one.*value);
    }
    return (least + most) / 2;
  }

  // Half of what links explain, of the rest half on the reducer, and what is left then on every
  // step, with half of what a bucket may cost and of how far ranks may be spread.
  void take_the_middle() {
    middle_ = base_;
    const double bucket_us = middle_of(&RowExplanation::bucket_us);
    middle_.machine.bucket_ns = std::llround(bucket_us * 1e3);
    middle_.machine.rank_spread = middle_of(&RowExplanation::spread);
    if (has(Excess::compute)) {
      middle_.compute *= solved({Excess::compute, bucket_us}, 1e-6, 1e6).value_or(1);
      return;
    }
    middle_.machine.rank_spread = std::min(middle_.machine.rank_spread, spread_that_fits());
    if (has(Excess::link))
      slow_links(std::sqrt(solved({Excess::link, bucket_us}, 1, kMostSlower).value_or(1)),
                 &middle_.machine);
    const double parameter_us = solved({Excess::reducer, bucket_us}, 0, kMostOneRankUs).value_or(0);
    if (fitted_.ranks == 1) {
      middle_.machine.parameter_ns += std::llround(parameter_us * 1e3);
      return;
    }
    middle_.machine.parameter_ns +=
        std::llround(std::min(parameter_us / 2, kMostParameterUs) * 1e3);
    slow_what_is_left(bucket_us);
    middle_.machine.sync_ns += std::llround(
        std::max(0.0, fitted_.ms - simulator_.step_ms(middle_, place_of(fitted_))) * 1e6);
  }

  // What every step takes beside is a small part of it, or rather links are slow.
  void slow_what_is_left(double bucket_us) {
    const double without_ms = (1 - kMostBeside) * fitted_.ms;
    const auto slower =
        has_links() ? solved({Excess::link, bucket_us}, 1, kMostSlower, without_ms) : std::nullopt;
    if (slower) slow_links(*slower, &middle_.machine);
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

  std::optional<double> solved(const RowExplanation& explanation, double least, double most) const {
    return solved(explanation, least, most, fitted_.ms);
  }
  std::optional<double> solved(RowExplanation explanation, double least, double most,
                               double ms) const {
    return value_giving(ms, least, most, [&](double guess) {
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
      tell(fmt::format("simulating row {} of {}", fit_.rows.size() + 1, table_.rows.size()));
      PredictedRow predicted{row};
      predicted.ms = simulator_.step_ms(middle_, place_of(row));
      predicted.low = predicted.high = predicted.ms;
      std::vector<std::vector<double>>& steps = steps_.emplace_back();
      for (const RowExplanation& explanation : fit_.explanations) {
        steps.push_back(steps_ms(explanation, row));
        widen(explanation, steps.back(), &predicted);
      }
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
    const CostModel& cost = base_.machine.cost;
    fit_.notes.push_back(fmt::format(
        "the fitted row is of one {}, and says nothing of links{}: the other intervals allow them "
        "to be {} times slower than the machine says",
        fitted_.ranks == 1 ? "rank" : "host", fitted_.ranks == 1 ? "" : " between hosts",
        unseen_slower(fitted_.ranks == 1 ? cost.link : cost.across, fitted_.ranks)));
  }

  // What the row does not go over, as slow as it may be.
  void slow_unseen(MachineModel* machine) const {
    const CostModel& said = base_.machine.cost;
    const auto slow = [&](const LinkCost& link, LinkCost* slower) {
      slow_link(unseen_slower(link, fitted_.ranks), slower);
      slower->alpha_ns = link.alpha_ns;
      delay_messages(kLatencyRange, slower);
    };
    slow(said.across, &machine->cost.across);
    if (fitted_.ranks > 1) return;
    slow(said.link, &machine->cost.link);
    slow_cores(unseen_slower(said.link, 1), &machine->cost);
  }

  // Nor does a row of one host tell what a step of several takes beside: as much as one of several
  // ranks, of two hosts, and more with log2 of the ranks.
  bool is_of_one_host() const {
    return fitted_.ranks > 1 && base_.machine.cost.tables.empty() &&
           base_.machine.cost.ranks_per_host > 1 && !crosses_hosts(fitted_.ranks);
  }
  int64_t two_hosts() const { return 2 * base_.machine.cost.ranks_per_host; }

  // Under the explanation, with the machine's links or, where the fitted row does not go over them,
  // with slower ones.
  std::vector<double> steps_ms(const RowExplanation& explanation, const PublishedRow& row) const {
    Guess guess = base_;
    apply(explanation, &guess);
    std::vector<double> steps = {simulator_.step_ms(guess, place_of(row))};
    if (!is_unseen(row.ranks)) return steps;
    slow_unseen(&guess.machine);
    const double slow_ms = simulator_.step_ms(guess, place_of(row));
    const double more = is_of_one_host() ? kMostBeside * growth_of(row.ranks, two_hosts()).most : 0;
    steps.push_back(slow_ms + more * steps.front());
    return steps;
  }

  // The explanations for a machine file, where other ranks and caps are asked about.
  void keep_alternatives() {
    for (const RowExplanation& explanation : fit_.explanations) {
      Guess guess = base_;
      apply(explanation, &guess);
      const bool grows = explanation.excess == Excess::every_step || explanation.beside_ms > 0;
      keep_alternative(guess, grows && fitted_.ranks > 1 ? fitted_.ranks : 0);
      if (!base_.machine.cost.tables.empty()) continue;
      slow_unseen(&guess.machine);  // changes nothing of what one host's ranks do
      if (fitted_.ranks == 1 || !crosses_hosts(fitted_.ranks)) keep_alternative(guess, 0);
      if (!is_of_one_host()) continue;
      guess.machine.sync_ns += std::llround(kMostBeside * fitted_.ms * 1e6);
      keep_alternative(guess, two_hosts(), true);
    }
  }

  void keep_alternative(const Guess& guess, int64_t sync_ranks, bool of_hosts = false) {
    Alternative one = alternative_of(guess.machine, middle_.machine);
    one.compute = guess.compute / middle_.compute;
    one.sync_ranks = sync_ranks;
    one.of_hosts = of_hosts;
    fit_.machine.alternatives.push_back(one);
  }

  void widen(const RowExplanation& explanation, const std::vector<double>& steps,
             PredictedRow* predicted) const {
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
    accuracy.cap_error = cap_error();
    fit_.machine.accuracy = accuracy;
    keep_alternatives();
  }

  // Of rows that differ in their cap alone.
  std::optional<double> cap_error() const {
    std::optional<double> most;
    for (size_t i = 0; i < fit_.rows.size(); ++i)
      for (size_t j = 0; j < fit_.rows.size(); ++j) {
        const PublishedRow &a = fit_.rows[i].row, &b = fit_.rows[j].row;
        if (a.ranks == b.ranks && a.passes == b.passes && a.cap_mb != b.cap_mb)
          most = std::max(most.value_or(kLeastError), ratio_error(i, j));
      }
    return most;
  }

  // Of what the explanations make of the ratio of two rows, the farthest from what is predicted.
  double ratio_error(size_t a, size_t b) const {
    const double ratio = fit_.rows[a].ms / fit_.rows[b].ms;
    double most = 0;
    for (size_t i = 0; i < fit_.explanations.size(); ++i)
      for (size_t k = 0; k < steps_[a][i].size(); ++k)
        most = std::max(most, std::fabs(steps_[a][i][k] / steps_[b][i][k] / ratio - 1));
    return most;
  }

  const RowSimulator simulator_;
  const PublishedTable& table_;
  const RowProgress& progress_;
  Guess base_, middle_;
  PublishedRow fitted_;
  std::optional<PublishedRow> alone_;
  RowFit fit_;
  std::vector<std::vector<std::vector<double>>> steps_;  // of fit_.rows, by explanation
};

}  // namespace

Expected<RowFit> fit_row(const RunPlan& plan, const MachineModel& machine,
                         const PublishedTable& table, const RowProgress& progress) {
  return RowFitter(plan, machine, table, progress).fit();
}

}  // namespace lockstep
