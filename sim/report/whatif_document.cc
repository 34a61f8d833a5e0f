#include "sim/report/whatif_document.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "sim/judge/straggler.h"
#include "sim/report/table.h"
#include "sim/report/version.h"

namespace lockstep {
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
  return {{"schema_version", 1},
          {"lockstep_version", lockstep_version()},
          {"commit", lockstep_commit()},
          {"exit_code", document.exit_code},
          {"runs", std::move(runs)}};
}

}  // namespace lockstep
