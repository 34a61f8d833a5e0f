#include "sim/calibrate/row_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/calibrate/alternatives.h"
#include "sim/calibrate/row_context.h"
#include "sim/calibrate/row_doubts.h"
#include "sim/calibrate/row_middle.h"
#include "sim/calibrate/row_unseen.h"
#include "sim/des/job_of_plan.h"

namespace lockstep {
namespace {

constexpr double kMostBatches = 4096;

class RowFitter {
 public:
  RowFitter(const RunPlan& plan, const MachineModel& machine, const PublishedTable& table,
            const RowProgress& progress)
      : row_(plan, machine), table_(table), progress_(progress) {
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
    middle_ = middle_of(row_, fit_.explanations);
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

  InputErrors check() {
    for (const PublishedRow& row : table_.rows) {
      tell("reading the rows");
      if (row.cap_mb && !simulator_.has_cap())
        return {refused(fmt::format("a row of {} ranks has a bucket_cap_mb, but the scenario's "
                                    "reducer has no cap",
                                    row.ranks),
                        "rows without it, or a reducer with buckets")};
      if (const double batch = row_.place_of(row).batch; batch > kMostBatches)
        return {refused(fmt::format("a micro-batch of {} ranks has {:.6g} times the samples of the "
                                    "fitted row's",
                                    row.ranks, batch),
                        fmt::format("{} times at most", kMostBatches))};
      const auto planned = simulator_.job(base_, row_.place_of(row));
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
    const auto planned = simulator_.job(base_, row_.place_of(*alone_));
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
    if (base_.machine.says_bucket) return {static_cast<double>(base_.machine.bucket_ns) * 1e-3};
    return {0, kMostBucketUs};
  }

  // Of one rank there is no slowest.
  std::vector<double> spreads() const {
    if (base_.machine.says_spread) return {base_.machine.rank_spread};
    const auto has_several = [](const PublishedRow& row) { return row.ranks > 1; };
    if (std::none_of(table_.rows.begin(), table_.rows.end(), has_several)) return {0};
    return {0, 2 * kRankSpread};
  }

  double spread_between() const { return (spreads().front() + spreads().back()) / 2; }

  double row_ms(const RowExplanation& explanation) const {
    Guess guess = base_;
    apply(explanation, &guess);
    return row_.fitted_step_ms(guess);
  }

  bool is_explained() const {
    return std::any_of(fit_.explanations.begin(), fit_.explanations.end(),
                       [](const RowExplanation& one) { return one.as_said(); });
  }

  void explain() {
    if (alone_) explain_excess();
    if (is_explained()) return;
    fit_.explanations.clear();
    if (!alone_ && fitted_.ranks > 1)
      fit_.notes.push_back(
          "no row shows compute alone, so that nobody knows how much of the fitted row links are: "
          "one of one rank without a reducer (\"synchronized\": false) makes intervals narrower");
    if (alone_)
      fit_.notes.push_back(fmt::format(
          "the row takes {} ms, no more than compute alone and its collectives: compute is taken "
          "from the row instead",
          fitted_.ms));
    explain_compute();
  }

  // Latencies as they are said, and those at both ends of what they may be.
  std::vector<double> latencies() const {
    if (!row_.has_links()) return {1};
    return {1, 1 / kLatencyRange, kLatencyRange};
  }

  void explain_excess() {
    for (const double bucket_us : bucket_costs()) {
      explain_by_contention(bucket_us);
      for (const double messages : latencies()) {
        const RowExplanation one{.bucket_us = bucket_us, .messages = messages};
        add(Excess::reducer, one, 0, fitted_.ranks == 1 ? kMostOneRankUs : kMostParameterUs);
        if (fitted_.ranks == 1) continue;
        add(Excess::every_step, one, 0, fitted_.ms);
        if (messages == 1) explain_without_links(bucket_us);
        if (row_.has_links()) add(Excess::link, one, 1, kMostSlower);
      }
      if (row_.has_links()) add(Excess::latency, {.bucket_us = bucket_us}, 1, kLatencyRange);
    }
  }

  // Hosts have several switches, and a data sheet may be of one.
  void explain_without_links(double bucket_us) {
    if (row_.has_links())
      add(Excess::every_step, {.bucket_us = bucket_us, .links = 1 / kMostSlower}, 0, fitted_.ms);
  }

  // Of links as the machine says, and of slower ones.
  void explain_by_contention(double bucket_us) {
    if (fitted_.ranks == 1 || base_.machine.overlap_slowdown > 0) return;
    add(Excess::contention, {.bucket_us = bucket_us}, 0, kNotHidden);
    if (row_.has_links())
      add(Excess::link, {.bucket_us = bucket_us, .overlap = kNotHidden}, 1, kMostSlower);
  }

  void explain_compute() {
    const double slower = row_.has_links() ? most_links_slower(0) : 1;
    for (const double bucket_us : bucket_costs()) {
      const auto with = [&](double links, double messages) {
        return RowExplanation{.bucket_us = bucket_us, .links = links, .messages = messages};
      };
      for (const double messages : latencies()) add_compute(with(1, messages));
      if (fitted_.ranks == 1) {
        add_not_hidden(with(1, 1));
        add_compute(with(1 / kMostSlower, 1));  // hosts have several switches
      }
      if (!row_.has_links()) continue;
      for (const double messages : {1.0, 1 / kLatencyRange})
        add_compute(with(1 / kMostSlower, messages));
      for (const double messages : {1.0, kLatencyRange}) add_compute(with(slower, messages));
      add_not_hidden(with(most_links_slower(kNotHidden), 1));
    }
    if (base_.machine.says_sync) return;
    for (const double bucket_us : bucket_costs())
      add_compute({.bucket_us = bucket_us, .beside_ms = row_.most_beside_ms()});
  }

  void add_not_hidden(RowExplanation one) {
    if (base_.machine.overlap_slowdown > 0) return;
    one.overlap = kNotHidden;
    add_compute(one);
    if (one.links == 1) return;
    one.links = 1;
    add_compute(one);
  }

  void add_compute(const RowExplanation& one) { add(Excess::compute, one, 1e-6, 1e6); }

  // By how much links may be slower than the machine says, of those that the row goes over: by no
  // more than leaves something for compute.
  double most_links_slower(double overlap) const {
    double slower = kMostSlower;
    while (slower > 1 && !leaves_compute(slower, overlap)) slower /= 2;
    return slower;
  }

  bool leaves_compute(double links_slower, double overlap) const {
    Guess least = base_;
    apply({.excess = Excess::compute,
           .value = 1e-6,
           .links = links_slower,
           .overlap = overlap,
           .across = row_.goes_across()},
          &least);
    return simulator_.step_ms(least, row_.place_of(fitted_)) < fitted_.ms;
  }

  void add(Excess excess, RowExplanation one, double least, double most) {
    one.excess = excess;
    one.across = row_.goes_across();
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
      const double least_ms = simulator_.step_ms(least, row_.place_of(row));
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
                    fitted_.ranks, fitted_.ms, simulator_.step_ms(least, row_.place_of(fitted_))),
        "faster links (--machine), or another row")};
  }

  void predict() {
    for (const PublishedRow& row : table_.rows) {
      if (!row.synchronized) continue;
      tell(fmt::format("simulating row {} of {}", fit_.rows.size() + 1, table_.rows.size()));
      PredictedRow predicted{row};
      predicted.ms = simulator_.step_ms(middle_, row_.place_of(row));
      predicted.low = predicted.high = predicted.ms;
      std::vector<std::vector<double>>& steps = steps_.emplace_back();
      for (const RowExplanation& explanation : fit_.explanations) {
        steps.push_back(steps_ms(explanation, row));
        widen(explanation, steps.back(), &predicted);
      }
      if (!row.fitted) {
        const double others = other_accelerators(row.ranks, fitted_.ranks, spread_between());
        predicted.low = std::min(predicted.low, predicted.ms * (1 - kLeastError)) * (1 - others);
        predicted.high = std::max(predicted.high, predicted.ms * (1 + kLeastError)) * (1 + others);
      }
      fit_.rows.push_back(predicted);
    }
    fit_.machine = middle_.machine;
    Place alone = row_.place_of(fitted_);  // as compute is before it waits for the slowest
    alone.ranks = 1;
    const auto planned = simulator_.job(middle_, alone);
    fit_.forward_ms = static_cast<double>(planned.value().job.forward_ns) * 1e-6;
    fit_.backward_ms = static_cast<double>(planned.value().job.backward_ns) * 1e-6;
    fit_.emulated = simulator_.is_emulated();
    note_spread();
    note_unseen();
    note_batches();
    if (fit_.emulated) return;
    fit_.machine.forward_ms = fit_.forward_ms;
    fit_.machine.backward_ms = fit_.backward_ms;
  }

  void note_spread() {
    if (spreads().size() < 2) return;
    fit_.notes.push_back(fmt::format(
        "the compute of ranks is assumed to differ by {:.1f} % (standard deviation, so that all "
        "wait for the slowest), and intervals allow 0 to {:.1f} %: \"rank_spread\" in the "
        "machine file replaces it",
        middle_.machine.rank_spread * 100, spreads().back() * 100));
  }

  bool is_unseen(int64_t ranks) const {
    if (!base_.machine.cost.tables.empty()) return false;
    return fitted_.ranks == 1 ? ranks > 1
                              : row_.crosses_hosts(ranks) && !row_.crosses_hosts(fitted_.ranks);
  }

  void note_unseen() {
    if (std::none_of(table_.rows.begin(), table_.rows.end(),
                     [&](const PublishedRow& row) { return is_unseen(row.ranks); }))
      return;
    const UnseenSlower slower = unseen_slower(base_.machine.cost, fitted_.ranks);
    fit_.notes.push_back(fmt::format(
        "the fitted row is of one {}, and says nothing of links{}: the other intervals allow them "
        "to be {} times slower than the machine says",
        fitted_.ranks == 1 ? "rank" : "host", fitted_.ranks == 1 ? "" : " between hosts",
        fitted_.ranks == 1 ? slower.link : slower.across));
  }

  void note_batches() {
    if (std::any_of(fit_.rows.begin(), fit_.rows.end(),
                    [&](const PredictedRow& row) { return row_.place_of(row.row).batch != 1; }))
      fit_.notes.push_back(fmt::format(
          "rows have micro-batches of other sizes than the fitted row's: their compute is taken in "
          "proportion to the samples, and the intervals allow {:.0f} % of the fitted row's to be "
          "there whatever its samples",
          kMostFixed * 100));
  }

  // Nor does a row of one host tell what a step of several takes beside: as much as one of several
  // ranks, of two hosts, and more with log2 of the ranks.
  bool is_of_one_host() const {
    return fitted_.ranks > 1 && base_.machine.cost.tables.empty() &&
           base_.machine.cost.ranks_per_host > 1 && !row_.crosses_hosts(fitted_.ranks);
  }
  int64_t two_hosts() const { return 2 * base_.machine.cost.ranks_per_host; }

  // Under the explanation, with the machine's links or, where the fitted row does not go over them,
  // with slower ones.
  std::vector<double> steps_ms(const RowExplanation& explanation, const PublishedRow& row) const {
    Guess guess = base_;
    apply(explanation, &guess);
    const Place place = row_.place_of(row);
    std::vector<double> steps = {simulator_.step_ms(guess, place)};
    if (place.batch != 1) {
      Guess fixed = guess;
      fixed.fixed = kMostFixed;
      steps.push_back(simulator_.step_ms(fixed, place));
    }
    if (!is_unseen(row.ranks)) return steps;
    slow_unseen(base_.machine, fitted_.ranks, &guess.machine);
    const double slow_ms = simulator_.step_ms(guess, place);
    const double more = is_of_one_host() ? kMostBeside * growth(row.ranks, two_hosts()).most : 0;
    steps.push_back(slow_ms + more * steps.front());
    return steps;
  }

  Growth growth(int64_t ranks, int64_t fitted) const {
    return growth_of(ranks, fitted, base_.machine.cost.ranks_per_host);
  }
  // What is beside a step of one rank is not there: it is said of two.
  int64_t grows_from() const { return std::max<int64_t>(fitted_.ranks, 2); }

  // The explanations for a machine file, where other ranks and caps are asked about.
  void keep_alternatives() {
    for (const RowExplanation& explanation : fit_.explanations) {
      Guess guess = base_;
      apply(explanation, &guess);
      const bool grows = explanation.excess == Excess::every_step || explanation.beside_ms > 0;
      keep_alternative(guess, grows ? grows_from() : 0);
      if (!base_.machine.cost.tables.empty()) continue;
      slow_unseen(base_.machine, fitted_.ranks,
                  &guess.machine);  // changes nothing of what one host's ranks do
      if (fitted_.ranks == 1 || !row_.crosses_hosts(fitted_.ranks)) keep_alternative(guess, 0);
      if (!is_of_one_host()) continue;
      guess.machine.sync_ns += std::llround(kMostBeside * fitted_.ms * 1e6);
      keep_alternative(guess, two_hosts(), true);
    }
    for (const double sign : {-1.0, 1.0}) keep_other_accelerators(sign);
  }

  void keep_other_accelerators(double sign) {
    if (spreads().back() == 0) return;
    const int64_t other = fitted_.ranks == 1 ? 2 : 1;
    Alternative one = alternative_of(middle_.machine, middle_.machine);
    one.compute = 1 + sign * other_accelerators(other, fitted_.ranks, spread_between());
    one.not_ranks = fitted_.ranks;
    fit_.machine.alternatives.push_back(one);
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
    double low = *std::min_element(steps.begin(), steps.end());
    double high = *std::max_element(steps.begin(), steps.end());
    const double beside =
        explanation.excess == Excess::every_step ? explanation.value : explanation.beside_ms;
    if (beside > 0 && predicted->row.ranks > 1) {
      const Growth grown = growth(predicted->row.ranks, grows_from());
      low -= beside * (1 - grown.least);
      high += beside * (grown.most - 1);
      // Micro-batches may take as large a part of the step beside as a step of one.
      if (explanation.beside_ms > 0 && row_.passes_of(fitted_) > 1)
        high += kMostBeside * grown.most * steps.front();
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
        if (a.ranks == b.ranks && a.passes == b.passes && a.samples == b.samples &&
            a.cap_mb != b.cap_mb)
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

  RowContext row_;
  const RowSimulator& simulator_ = row_.simulator;
  const PublishedTable& table_;
  const RowProgress& progress_;
  Guess& base_ = row_.base;
  PublishedRow& fitted_ = row_.fitted;
  Guess middle_;
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
