#include "sim/tools/program/drill.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "sim/tools/program/drill_fit.h"
#include "sim/tools/program/drill_relation.h"
#include "sim/tools/program/judge.h"
#include "sim/tools/program/sketch.h"

namespace lockstep {
namespace {

constexpr double kDrillFloor = 1e-4;  // what is smaller beside its surroundings may be rounding

using DrillOutput = std::pair<size_t, size_t>;  // a call, and which of its outputs
using DrillGradients = std::map<DrillOutput, std::vector<const DrillGradient*>>;

class DrillJudge {
 public:
  explicit DrillJudge(const DrillFacts& facts)
      : facts_(facts), world_(facts.ranks.size()), aligned_(align(facts.ranks, facts.one)) {}
  DrillFinding judge();

 private:
  std::string unfit() const;
  std::string other_samples();  // goes through the forwards, for the weights, too
  bool same_samples(const std::vector<int64_t>& begins, const std::vector<int64_t>& ends) const;
  const DrillCall& of_one(size_t call) const;  // by place in the alignment
  const DrillCall& of_rank_0(size_t call) const;
  bool start();  // true once something was found, as in all that follow
  bool forward();
  bool forward_of(const DrillOutput& output);
  void take_wrong(const DrillOutput& output);
  bool given_fits(size_t call, bool means = false) const;
  GivenCalls given_of(size_t call) const;
  std::optional<ScalarFactors> factors_of(size_t call) const;
  std::optional<size_t> input_that(size_t call, bool (*is)(const DrillRelations&)) const;
  std::optional<DrillTerm> summed_term(size_t call) const;
  bool backward(double factor);
  bool backward_of(const DrillGradient& gradient, size_t call, size_t time, double factor);
  bool local_gradients(double factor);
  void take_function_of(const DrillParameter& parameter);
  bool optimizer_step();
  std::optional<double> update_ratio() const;
  double reduction_factor() const;
  std::optional<DrillFit> fit_of(DrillRelation relation, const DrillOutput& output) const;
  DrillTensors outputs(const DrillOutput& output) const;
  double inputs_norm(size_t call) const;
  void clear_fit() { found_.distance = found_.ratio = std::nullopt; }
  void take_fit(const DrillFit& fit);  // the nearer one stays
  void take_tensors(const DrillTensors& ranks, const DrillTensor& one);
  void index_gradients();
  void index_consumers();

  const DrillFacts& facts_;
  size_t world_;
  DrillFinding found_;
  DrillAlignment aligned_;                    // a DrillOutput is of one of its calls
  std::vector<std::vector<double>> weights_;  // by call: each rank's share of its samples
  std::map<DrillOutput, DrillRelations> relations_;
  std::vector<DrillGradients> gradients_;       // by rank
  std::vector<std::vector<size_t>> consumers_;  // of each call
  double largest_gradient_ = 0;
};

std::string DrillJudge::unfit() const {
  std::vector<const DrillRank*> all = {&facts_.one};
  for (const DrillRank& rank : facts_.ranks) all.push_back(&rank);
  for (const DrillRank* rank : all) {
    if (!rank->why.empty()) return rank->why;
    if (!rank->ended) return "the step was not recorded to its end";
    if (rank->calls.empty()) return "no operator with a gradient was seen in the step";
  }
  return "";
}

std::vector<std::string> samples_between(const std::vector<std::string>& samples, int64_t begin,
                                         int64_t end) {
  const auto size = static_cast<int64_t>(samples.size());
  begin = std::clamp(begin, int64_t{0}, size);
  return {samples.begin() + begin, samples.begin() + std::clamp(end, begin, size)};
}

std::string DrillJudge::other_samples() {
  std::vector<int64_t> begins(world_ + 1, 0), ends(world_ + 1, 0);
  for (const AlignedCall& call : aligned_.calls) {
    if (facts_.one.calls[call.one].samples != ends[world_]) {
      begins = ends;
      for (size_t rank = 0; rank < world_; ++rank)
        ends[rank] = facts_.ranks[rank].calls[call.ranks[rank]].samples;
      ends[world_] = facts_.one.calls[call.one].samples;
      if (!same_samples(begins, ends))
        return "a forward of the ranks does not have the samples of one device's";
    }
    std::vector<double> shares(world_);
    for (size_t rank = 0; rank < world_; ++rank)
      shares[rank] = static_cast<double>(ends[rank]) - static_cast<double>(begins[rank]);
    const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (double& share : shares)
      share = total > 0 ? share / total : 1 / static_cast<double>(world_);
    weights_.push_back(std::move(shares));
  }
  return "";
}

// Of one forward of each rank and of one device, from where to where in their samples.
bool DrillJudge::same_samples(const std::vector<int64_t>& begins,
                              const std::vector<int64_t>& ends) const {
  std::vector<std::string> all;
  for (size_t rank = 0; rank < world_; ++rank)
    for (std::string& sample :
         samples_between(facts_.steps[rank].samples, begins[rank], ends[rank]))
      all.push_back(std::move(sample));
  auto expected = samples_between(facts_.one_step.samples, begins[world_], ends[world_]);
  std::sort(all.begin(), all.end());
  std::sort(expected.begin(), expected.end());
  return all == expected;
}

DrillTensors DrillJudge::outputs(const DrillOutput& output) const {
  DrillTensors all;
  for (size_t rank = 0; rank < world_; ++rank)
    all.push_back(
        &facts_.ranks[rank].calls[aligned_.calls[output.first].ranks[rank]].outputs[output.second]);
  return all;
}

const DrillCall& DrillJudge::of_one(size_t call) const {
  return facts_.one.calls[aligned_.calls[call].one];
}
const DrillCall& DrillJudge::of_rank_0(size_t call) const {
  return facts_.ranks[0].calls[aligned_.calls[call].ranks[0]];
}

// What is small beside what it was made of may be rounding alone.
double DrillJudge::inputs_norm(size_t call) const {
  double most = 0;
  for (const size_t input : of_one(call).inputs)
    for (const DrillTensor& made : facts_.one.calls[input].outputs)
      most = std::max(most, made.norm());
  return most;
}

std::optional<DrillFit> DrillJudge::fit_of(DrillRelation relation,
                                           const DrillOutput& output) const {
  return forward_fit(relation, outputs(output), of_one(output.first).outputs[output.second],
                     weights_[output.first], kDrillFloor * inputs_norm(output.first));
}

void DrillJudge::take_fit(const DrillFit& fit) {
  if (found_.distance && *found_.distance <= fit.distance) return;
  found_.distance = fit.distance;
  found_.ratio = fit.ratio;
}

void DrillJudge::take_tensors(const DrillTensors& ranks, const DrillTensor& one) {
  found_.shape = ranks[0]->shape;
  found_.one_shape = one.shape;
}

// By rank 0 it was made of the same calls, and what those made fits; means: and has no more rows on
// one device.
bool DrillJudge::given_fits(size_t call, bool means) const {
  const std::vector<size_t>&one = of_one(call).inputs, &rank = of_rank_0(call).inputs;
  for (size_t i = 0; i < one.size(); ++i) {
    const auto input = aligned_.of_one[one[i]];
    if (!input || i >= rank.size() || aligned_.of[0][rank[i]] != input) return false;
    for (size_t k = 0; k < of_one(*input).outputs.size(); ++k) {
      const auto fits = relations_.find({*input, k});
      if (fits == relations_.end() || fits->second.empty()) return false;
      if (means && of_one(*input).outputs[k].shape != of_rank_0(*input).outputs[k].shape)
        return false;
    }
  }
  return !one.empty() && one.size() == rank.size();
}

GivenCalls DrillJudge::given_of(size_t call) const {
  GivenCalls given;
  given.one = &of_one(call);
  for (size_t rank = 0; rank < world_; ++rank)
    given.ranks.push_back(&facts_.ranks[rank].calls[aligned_.calls[call].ranks[rank]]);
  return given;
}

// Of a number of which a mean, or a sum over ranks, is that of one device.
std::optional<ScalarFactors> DrillJudge::factors_of(size_t call) const {
  if (of_one(call).inputs.size() != 1 || !given_fits(call)) return std::nullopt;
  const auto input = aligned_.of_one[of_one(call).inputs[0]];
  return input ? scalar_factors(given_of(call), given_of(*input)) : std::nullopt;
}

// The first that is so, by place in the alignment.
std::optional<size_t> DrillJudge::input_that(size_t call, bool (*is)(const DrillRelations&)) const {
  for (const size_t input : of_one(call).inputs) {
    const auto aligned = aligned_.of_one[input];
    const auto fits = aligned ? relations_.find({*aligned, 0}) : relations_.end();
    if (fits != relations_.end() && is(fits->second)) return aligned;
  }
  return std::nullopt;
}

std::optional<DrillTerm> DrillJudge::summed_term(size_t call) const {
  const auto mean = input_that(call, is_only_mean);
  auto sum = input_that(call, is_only_sum);
  if (!is_addition(of_one(call).name) || !given_fits(call) || !mean || !sum) return std::nullopt;
  while (const auto before = input_that(*sum, is_only_sum)) sum = before;
  DrillTerm found{place_of(of_rank_0(*sum)), false, std::nullopt};
  const auto from = input_that(*sum, is_only_mean);
  found.was_mean = from.has_value() && is_product(of_one(*sum).name);
  if (found.was_mean) found.factors = scalar_factors(given_of(*sum), given_of(*from));
  return found;
}

// The first output that does not fit, and what may have made it so.
void DrillJudge::take_wrong(const DrillOutput& output) {
  found_.stage = DrillStage::forward;
  found_.place = place_of(of_rank_0(output.first));
  found_.call = aligned_.calls[output.first].one;
  found_.given_fits = given_fits(output.first);
  found_.of_means = given_fits(output.first, true);
  found_.whole = differing_whole(given_of(output.first));
  found_.factors = factors_of(output.first);
  const auto mean = input_that(output.first, is_of_own_samples);
  if (mean && found_.given_fits && input_that(output.first, is_rows))
    found_.own_mean = place_of(of_rank_0(*mean));
  found_.summed_term = summed_term(output.first);
  found_.lacks_offset = lack_offset(given_of(output.first));
  found_.takes_sums = reduction_factor() == 1;
  found_.numbers = differing_numbers(given_of(output.first));
  take_tensors(outputs(output), of_one(output.first).outputs[output.second]);
  if (aligned_.parting && aligned_.parting->before <= aligned_.calls[output.first].one)
    found_.parting = aligned_.parting;
}

bool DrillJudge::forward_of(const DrillOutput& output) {
  const DrillTensor& one = of_one(output.first).outputs[output.second];
  DrillRelations& fits = relations_[output];
  clear_fit();
  for (const DrillRelation relation : kDrillRelations) {
    const auto fit = fit_of(relation, output);
    if (!fit) continue;
    if (fit->distance <= kProgramBound) fits.push_back(relation);
    take_fit(*fit);
  }
  if (fits.empty())
    for (const DrillRelation relation : kLooseRelations)
      if (const auto fit = fit_of(relation, output); fit && fit->distance <= kProgramBound)
        fits.push_back(relation);
  if (!fits.empty()) return ++found_.compared, false;
  if (may_fit(outputs(output), one)) return ++found_.skipped, false;
  if (one.rows && one.rows->size() == 2 && one.shape.empty()) found_.ratio.reset();  // no wonder
  take_wrong(output);
  return true;
}

bool DrillJudge::start() {
  for (const DrillParameter& one : facts_.one.parameters) {
    for (size_t rank = 0; rank < world_; ++rank) {
      const DrillParameter* there = parameter_of(facts_.ranks[rank], one.name);
      if (there == nullptr || !there->values || !one.values) continue;
      const double off = sketch_distance(there->values, one.values, 0);
      if (off <= kProgramBound) continue;
      found_.ranks.push_back(static_cast<int64_t>(rank));
      found_.distance = std::max(found_.distance.value_or(0), off);
    }
    if (found_.ranks.empty()) continue;
    found_.stage = DrillStage::start;
    found_.parameter = one.name;
    return true;
  }
  return false;
}

bool DrillJudge::forward() {
  for (size_t call = 0; call < aligned_.calls.size(); ++call)
    for (size_t i = 0; i < of_one(call).outputs.size(); ++i)
      if (forward_of({call, i})) return true;
  return false;
}

void DrillJudge::index_gradients() {
  for (size_t rank = 0; rank < world_; ++rank) {
    DrillGradients& by_output = gradients_.emplace_back();
    for (const DrillGradient& one : facts_.ranks[rank].gradients)
      if (const auto call = aligned_.of[rank][one.call])
        by_output[{*call, one.output}].push_back(&one);
  }
  for (const DrillGradient& one : facts_.one.gradients)
    largest_gradient_ = std::max(largest_gradient_, one.value.norm());
}

void DrillJudge::index_consumers() {
  consumers_.resize(facts_.one.calls.size());
  for (size_t call = 0; call < facts_.one.calls.size(); ++call)
    for (const size_t input : facts_.one.calls[call].inputs) consumers_[input].push_back(call);
}

// `time`: a backward may come more than once.
bool DrillJudge::backward_of(const DrillGradient& gradient, size_t call, size_t time,
                             double factor) {
  const DrillOutput output = {call, gradient.output};
  const std::vector<size_t>& consumers = consumers_[gradient.call];
  DrillTensors ranks;
  for (const DrillGradients& rank : gradients_) {
    const auto at = rank.find(output);
    if (at != rank.end() && time < at->second.size()) ranks.push_back(&at->second[time]->value);
  }
  clear_fit();
  if (ranks.size() == world_) {
    for (const DrillRelation relation : relations_[output])
      if (const auto fit = backward_fit(relation, ranks, gradient.value, weights_[call], factor,
                                        kDrillFloor * factor * largest_gradient_))
        take_fit(*fit);
    // Each has the same where a backward begins, and in what follows while losses add up: what is
    // wrong is then how such a sum goes back to rows.
    const auto same = fit_each(ranks, gradient.value, std::vector<double>(world_, 1.0), 0);
    if (same && (consumers.empty() || is_sum(relations_[output]))) take_fit(*same);
    if (found_.distance && *found_.distance <= kProgramBound) return ++found_.compared, false;
    if (!found_.distance || may_fit(ranks, gradient.value)) return ++found_.skipped, false;
    take_tensors(ranks, gradient.value);
  }
  found_.stage = DrillStage::backward;
  found_.consumers = consumers.size();
  found_.in_function = std::any_of(consumers.begin(), consumers.end(), [&](size_t consumer) {
    return facts_.one.calls[consumer].name.ends_with(".apply");
  });
  found_.input = place_of(of_rank_0(call));
  found_.place = consumers.empty() ? found_.input : place_of(facts_.one.calls[consumers.back()]);
  if (consumers.size() == 1)
    if (const auto consumer = aligned_.of_one[consumers[0]])
      found_.numbers = differing_numbers(given_of(*consumer));
  found_.parting = aligned_.parting;
  return true;
}

bool DrillJudge::backward(double factor) {
  std::map<DrillOutput, size_t> times;
  for (const DrillGradient& gradient : facts_.one.gradients) {
    const auto call = aligned_.of_one[gradient.call];
    if (!call || relations_[{*call, gradient.output}].empty()) {
      ++found_.skipped;
      continue;
    }
    if (backward_of(gradient, *call, times[{*call, gradient.output}]++, factor)) return true;
  }
  return local_gradients(factor);
}

// Of all ranks, by `factor`; nothing where one has none.
Sketch summed(const std::vector<DrillRank>& ranks, const std::string& name, double factor) {
  std::vector<double> sum(5, 0.0);
  for (const DrillRank& rank : ranks) {
    const DrillParameter* one = parameter_of(rank, name);
    if (one == nullptr || !one->gradient) return std::nullopt;
    for (size_t i = 0; i < 5; ++i) sum[i] += (*one->gradient)[i] / factor;  // of norms: a bound
  }
  return sum;
}

// All that uses the parameter are Functions of the script, whose backwards make its gradient.
void DrillJudge::take_function_of(const DrillParameter& parameter) {
  const auto is_function = [&](size_t user) {
    return facts_.one.calls[user].name.ends_with(".apply");
  };
  if (parameter.users.empty() ||
      !std::all_of(parameter.users.begin(), parameter.users.end(), is_function))
    return;
  found_.in_function = true;
  found_.place = place_of(facts_.one.calls[parameter.users[0]]);
}

bool DrillJudge::local_gradients(double factor) {
  double most = 0;
  for (const DrillParameter& one : facts_.one.parameters)
    if (one.gradient) most = std::max(most, (*one.gradient)[4]);
  for (const DrillParameter& one : facts_.one.parameters) {
    const Sketch ranks = summed(facts_.ranks, one.name, factor);
    const double off = sketch_distance(ranks, one.gradient, kDrillFloor * most);
    if (off <= kProgramBound) continue;
    found_.stage = DrillStage::local_gradient;
    found_.parameter = one.name;
    found_.distance = off;
    found_.ratio.reset();
    take_function_of(one);
    return true;
  }
  return false;
}

double DrillJudge::reduction_factor() const {
  const auto world = static_cast<double>(world_);
  double most = 0, factor = world;
  for (size_t i = 0; i < facts_.steps[0].names.size(); ++i) {
    const Sketch& reduced = facts_.steps[0].grads[i];
    const Sketch ranks = summed(facts_.ranks, facts_.steps[0].names[i], 1);
    if (!reduced || !ranks || (*reduced)[4] <= most) continue;
    most = (*reduced)[4];
    const double ratio = sketch_ratio(reduced, ranks);
    factor = std::abs(ratio - 1) < kProgramRatioBound ? 1 : world;
  }
  return factor;
}

bool DrillJudge::optimizer_step() {
  const ProgramStep &ranks = facts_.steps[0], &one = facts_.one_step;
  const auto differs = [&](const std::vector<Sketch>& a, const std::vector<Sketch>& b, double floor,
                           DrillStage stage) {
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      const double off = sketch_distance(a[i], b[i], floor);
      if (off <= kProgramBound) continue;
      found_.stage = stage;
      found_.parameter = ranks.names[i];
      found_.distance = off;
      const double ratio = sketch_ratio(a[i], b[i]);
      found_.ratio.reset();
      if (ratio > 0 && sketch_distance(a[i], scaled_by(b[i], ratio), floor) < kProgramRatioBound)
        found_.ratio = ratio;
      return true;
    }
    return false;
  };
  // Of a step that exchanges gradients within itself, what it finds is each rank's own.
  if (ranks.within_step == 0 &&
      differs(ranks.grads, one.grads, kDrillFloor * largest_norm(one.grads), DrillStage::reduction))
    return true;
  if (!differs(ranks.params, one.params, 0, DrillStage::update)) return false;
  found_.ratio = update_ratio();
  return true;
}

// What a step added to a parameter.
Sketch update_of(const DrillRank& rank, const ProgramStep& step, size_t i) {
  const DrillParameter* before = parameter_of(rank, step.names[i]);
  if (before == nullptr || !before->values || !step.params[i]) return std::nullopt;
  Sketch added = step.params[i];
  for (size_t k = 0; k < kProjections; ++k) (*added)[k] -= (*before->values)[k];
  return added;
}

// Of all updates that are not those of one device: one number, if it is.
std::optional<double> DrillJudge::update_ratio() const {
  const ProgramStep &ranks = facts_.steps[0], &one = facts_.one_step;
  std::optional<double> common;
  for (size_t i = 0; i < std::min(ranks.names.size(), one.names.size()); ++i) {
    const Sketch own = update_of(facts_.ranks[0], ranks, i), due = update_of(facts_.one, one, i);
    if (!own || !due) return std::nullopt;
    for (size_t k = 0; k < kProjections; ++k) {
      if (std::abs((*due)[k]) <= kDrillFloor * due->back()) continue;  // rounding
      const double ratio = (*own)[k] / (*due)[k];
      if (std::abs(ratio - 1) < kProgramRatioBound) continue;  // by a norm that hides a factor
      if (common && std::abs(ratio / *common - 1) > kProgramRatioBound) return std::nullopt;
      common = common.value_or(ratio);
    }
  }
  return common && *common > 0 ? common : std::nullopt;
}

DrillFinding DrillJudge::judge() {
  found_.step = facts_.step;
  found_.world = world_;
  found_.words = unfit();
  if (found_.words.empty()) found_.words = other_samples();
  if (!found_.words.empty() || start() || forward()) return found_;
  index_gradients();
  index_consumers();
  // A mean is due, unless it does not fit and the program takes sums.
  const DrillFinding before = found_;
  if (backward(static_cast<double>(world_)) && reduction_factor() == 1) {
    found_ = before;
    if (backward(1)) return found_;
  }
  if (found_.stage != DrillStage::not_drilled || optimizer_step()) return found_;
  found_.parting = aligned_.parting;
  found_.stage = found_.parting ? DrillStage::calls : DrillStage::nothing;
  clear_fit();
  return found_;
}

}  // namespace

DrillFinding judge_drill(const DrillFacts& facts) { return DrillJudge(facts).judge(); }

}  // namespace lockstep
