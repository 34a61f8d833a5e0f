#include "sim/tools/whatif/forecast.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "scenarios/base/error.h"
#include "sim/analysis/metrics.h"
#include "sim/analysis/straggler.h"
#include "sim/report/machine.h"
#include "sim/report/text_style.h"
#include "sim/tools/whatif/one_rank_changed.h"

namespace lockstep {
namespace {

// `model` with only one phase, or only the delays, of `fixed`.
StepModel with_phase_of(const StepModel& fixed, Phase phase, StepModel model) {
  for (size_t i = 0; i < model.slots.size(); ++i)
    if (model.slots[i].phase == phase) model.slots[i].work_ns = fixed.slots[i].work_ns;
  return model;
}

StepModel with_delays_of(const StepModel& fixed, StepModel model) {
  for (size_t i = 0; i < model.transfers.size(); ++i)
    model.transfers[i].delay_ns = fixed.transfers[i].delay_ns;
  return model;
}

// Steps with other durations of some ranks: as they were, with all of `fixed`, or with only the
// works of one phase or only the delays of them.
class Change {
 public:
  virtual ~Change() = default;
  virtual double step_ns(size_t step) const = 0;
  virtual double step_ns(size_t step, Phase only) const = 0;
  virtual double step_ns_of_delays(size_t step) const = 0;
};

class SeveralRanks : public Change {
 public:
  SeveralRanks(const ReplayedSteps& steps, const std::vector<size_t>& ranks) : steps_(steps) {
    for (const StepModel& model : steps.models) fixed_.push_back(model.without(ranks));
  }
  double step_ns(size_t step) const override { return fixed_[step].step_ns(); }
  double step_ns(size_t step, Phase only) const override {
    return with_phase_of(fixed_[step], only, steps_.models[step]).step_ns();
  }
  double step_ns_of_delays(size_t step) const override {
    return with_delays_of(fixed_[step], steps_.models[step]).step_ns();
  }

 private:
  const ReplayedSteps& steps_;
  std::vector<StepModel> fixed_;
};

// Of which there is one for each rank: what all have in common is looked at once.
class SingleRank : public Change {
 public:
  SingleRank(const ReplayedSteps& steps, const std::vector<OneRankChanged>& changed, size_t rank)
      : steps_(steps), changed_(changed), rank_(rank) {
    for (const OneRankChanged& one : changed) {
      own_.push_back(one.own(rank));
      fixed_.push_back(one.of_others(rank));
    }
  }
  double step_ns(size_t step) const override { return changed_[step].step_ns(rank_, fixed_[step]); }
  double step_ns(size_t step, Phase only) const override {
    OneRankChanged::Durations durations = own_[step];
    const auto& slots = steps_.models[step].slots;
    for (size_t i = 0; i < slots.size(); ++i)
      if (slots[i].phase == only) durations.work_ns[i] = fixed_[step].work_ns[i];
    return changed_[step].step_ns(rank_, durations);
  }
  double step_ns_of_delays(size_t step) const override {
    return changed_[step].step_ns(rank_, {own_[step].work_ns, fixed_[step].delay_ns});
  }

 private:
  const ReplayedSteps& steps_;
  const std::vector<OneRankChanged>& changed_;
  const size_t rank_;
  std::vector<OneRankChanged::Durations> own_, fixed_;
};

class Predictor {
 public:
  Predictor(const ReplayedSteps& steps, uint64_t seed) : steps_(steps), seed_(seed) {
    for (const StepModel& model : steps.models) as_it_was_ms_.push_back(model.step_ns() * 1e-6);
  }

  StepTime replayed() const { return time_of(as_it_was_ms_); }
  StepTime time_of(const std::vector<double>& values_ms) const {
    return {bootstrap_mean(values_ms, kConfidence, seed_), median_of(values_ms),
            *std::min_element(values_ms.begin(), values_ms.end())};
  }

  Prediction predict(const std::vector<size_t>& ranks) const {
    return predict(ranks, SeveralRanks(steps_, ranks));
  }

  std::vector<Prediction> predict_each() const {
    std::vector<OneRankChanged> changed;
    for (const StepModel& model : steps_.models) changed.emplace_back(model);
    std::vector<Prediction> predictions;
    for (size_t rank = 0; rank < steps_.ranks(); ++rank)
      predictions.push_back(predict({rank}, SingleRank(steps_, changed, rank)));
    return predictions;
  }

 private:
  Prediction predict(const std::vector<size_t>& ranks, const Change& change) const {
    std::vector<double> without_ms, savings_ms;
    for (size_t i = 0; i < steps_.models.size(); ++i) {
      without_ms.push_back(change.step_ns(i) * 1e-6);
      savings_ms.push_back(as_it_was_ms_[i] - without_ms[i]);
    }
    return {ranks, time_of(without_ms), time_of(savings_ms), parts_of(change)};
  }

  std::vector<Prediction::Part> parts_of(const Change& change) const {
    std::vector<Prediction::Part> parts;
    const auto add = [&](const std::string& word, auto step_ns) {
      std::vector<double> costs;
      for (size_t i = 0; i < steps_.models.size(); ++i)
        costs.push_back(as_it_was_ms_[i] - step_ns(i) * 1e-6);
      const double cost_ms = mean_of(costs);
      if (cost_ms >= kLeastMs) parts.push_back({word, cost_ms});
    };
    for (int i = static_cast<int>(Phase::load); i <= static_cast<int>(Phase::teardown); ++i)
      add(to_word(static_cast<Phase>(i)),
          [&](size_t step) { return change.step_ns(step, static_cast<Phase>(i)); });
    add("link", [&](size_t step) { return change.step_ns_of_delays(step); });
    std::stable_sort(parts.begin(), parts.end(),
                     [](auto& a, auto& b) { return a.cost_ms > b.cost_ms; });
    return parts;
  }

  const ReplayedSteps& steps_;
  const uint64_t seed_;
  std::vector<double> as_it_was_ms_;
};

nlohmann::ordered_json time_json(const StepTime& time) {
  return {{"mean", time.mean_ms.value},
          {"low", time.mean_ms.low},
          {"high", time.mean_ms.high},
          {"median", time.median_ms},
          {"least", time.least_ms}};
}

nlohmann::ordered_json prediction_json(const Prediction& prediction) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (const auto& part : prediction.parts)
    parts.push_back({{"phase", part.phase}, {"cost_ms", part.cost_ms}});
  return {{"ranks", prediction.ranks},
          {"step_ms", time_json(prediction.step)},
          {"saving_ms", time_json(prediction.saving)},
          {"parts", std::move(parts)}};
}

}  // namespace

ReplayedSteps replayed_steps_of(const Timeline& timeline) {
  ReplayedSteps steps;
  steps.models = models_of(timeline);
  for (const StepModel& model : steps.models) {
    const auto step = std::find_if(timeline.steps.begin(), timeline.steps.end(),
                                   [&](auto& s) { return s.step == model.step; });
    LOCKSTEP_CHECK(step != timeline.steps.end(), "a model of a step that is not there");
    int64_t longest_ns = 0;
    for (const RankStep& rank : step->ranks)
      longest_ns = std::max(longest_ns, rank.time.length_ns());
    steps.measured_ms.push_back(static_cast<double>(longest_ns) * 1e-6);
  }
  return steps;
}

std::optional<Forecast> forecast_of(const ReplayedSteps& steps, const std::vector<size_t>& fixed,
                                    uint64_t seed) {
  if (steps.ranks() < 2) return std::nullopt;
  const Predictor predictor(steps, seed);
  Forecast forecast;
  forecast.steps = steps.models.size();
  forecast.ranks = steps.ranks();
  forecast.measured = predictor.time_of(steps.measured_ms);
  forecast.replayed = predictor.replayed();
  if (!fixed.empty()) {
    forecast.predictions.push_back(predictor.predict(fixed));
    return forecast;
  }
  forecast.predictions = predictor.predict_each();
  std::stable_sort(forecast.predictions.begin(), forecast.predictions.end(), [](auto& a, auto& b) {
    return a.saving.mean_ms.value > b.saving.mean_ms.value;
  });
  return forecast;
}

bool replay_is_off(const Forecast& forecast) {
  const double measured_ms = forecast.measured.mean_ms.value;
  return std::abs(forecast.replayed.mean_ms.value - measured_ms) > kReplayOff * measured_ms;
}

nlohmann::ordered_json as_json(const Forecast& forecast) {
  nlohmann::ordered_json predictions = nlohmann::ordered_json::array();
  for (const Prediction& prediction : forecast.predictions)
    predictions.push_back(prediction_json(prediction));
  return {{"steps", forecast.steps},
          {"world_size", forecast.ranks},
          {"measured_ms", time_json(forecast.measured)},
          {"replayed_ms", time_json(forecast.replayed)},
          {"predictions", std::move(predictions)}};
}

namespace {

std::string interval(const StepTime& time) {
  return tenths(time.mean_ms.low) + " .. " + tenths(time.mean_ms.high);
}

double share_of(const Forecast& forecast, const Prediction& prediction) {
  const double step_ms = forecast.replayed.mean_ms.value;
  return step_ms > 0 ? prediction.saving.mean_ms.value / step_ms : 0;
}

std::string source_of(const Prediction& prediction) {
  if (prediction.parts.empty()) return "-";
  std::vector<std::string> parts;
  for (const auto& part : prediction.parts)
    parts.push_back(part.phase + " " + tenths(part.cost_ms));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string what_if_table(const Forecast& forecast, const Style& style) {
  Table table;
  table.column("without");
  for (const char* header : {"step ms", "95 % interval", "saving ms", "95 % interval", "saving"})
    table.column(header, Table::Align::right);
  table.column("of it by phase, ms");
  for (const Prediction& prediction : forecast.predictions)
    table.row({fmt::format("{}", fmt::join(prediction.ranks, " ")),
               tenths(prediction.step.mean_ms.value), interval(prediction.step),
               tenths(prediction.saving.mean_ms.value), interval(prediction.saving),
               tenths(share_of(forecast, prediction) * 100) + " %", source_of(prediction)});
  return table.text(style);
}

std::string what_if_answer(const Forecast& forecast) {
  const Prediction& first = forecast.predictions.front();
  const double share = share_of(forecast, first);
  const auto ranks = static_cast<int64_t>(first.ranks.size());
  const std::string who =
      fmt::format("the lateness of {} {}", plural(ranks, "rank"), fmt::join(first.ranks, " "));
  if (first.saving.mean_ms.low <= 0 || share < kLeastCost)
    return fmt::format("nothing to gain: without {} a step would take {} ms instead of {}", who,
                       tenths(first.step.mean_ms.value), tenths(forecast.replayed.mean_ms.value));
  return fmt::format("without {} a step would take {} ms ({}) instead of {}: {} % less{}", who,
                     tenths(first.step.mean_ms.value), interval(first.step),
                     tenths(forecast.replayed.mean_ms.value), tenths(share * 100),
                     first.parts.empty() ? "" : ", most of it in " + first.parts[0].phase);
}

std::string run_text(const WhatIfDocument::Run& run, const Style& style) {
  std::string text = run.name + (run.label.empty() ? "" : "  " + run.label) + "  " +
                     short_path(run.run_dir) + "\n";
  if (!run.forecast)
    return text +
           "nothing to predict from: it has no whole step of several ranks after its first\n";
  const Forecast& forecast = *run.forecast;
  text += what_if_table(forecast, style);
  const auto steps = static_cast<int64_t>(forecast.steps);
  text += fmt::format("measured: {} ms a step ({}), the mean of {} {} of {} ranks\n",
                      tenths(forecast.measured.mean_ms.value), interval(forecast.measured),
                      grouped(steps), plural(steps, "step"), forecast.ranks);
  if (replay_is_off(forecast))
    text +=
        fmt::format("the replay of these steps takes {} ms: predictions are no better than that\n",
                    tenths(forecast.replayed.mean_ms.value));
  return text + what_if_answer(forecast) + "\n";
}

}  // namespace

std::string whatif_text(const WhatIfDocument& document, const Style& style) {
  std::string text;
  for (const WhatIfDocument::Run& run : document.runs)
    text += (text.empty() ? "" : "\n") + run_text(run, style);
  return text;
}

nlohmann::ordered_json as_json(const WhatIfDocument& document) {
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  for (const WhatIfDocument::Run& run : document.runs)
    runs.push_back({{"run_dir", run.run_dir},
                    {"name", run.name},
                    {"label", run.label},
                    {"forecast", run.forecast ? as_json(*run.forecast) : nullptr}});
  return with_head({{"exit_code", document.exit_code}, {"runs", std::move(runs)}});
}

}  // namespace lockstep
