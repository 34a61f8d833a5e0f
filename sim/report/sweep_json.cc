#include <nlohmann/json.hpp>

#include "scenarios/json/json_text.h"
#include "sim/report/document.h"
#include "sim/report/machine.h"
#include "sim/report/sweep_document.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json estimate_json(const std::optional<Estimate>& estimate, bool spans) {
  if (!estimate) return nullptr;
  return {{"median", estimate->value},
          {"low", spans ? Json(estimate->low) : Json()},
          {"high", spans ? Json(estimate->high) : Json()}};
}

Json run_json(const SweepRun& run) {
  const RunNumbers& n = run.numbers;
  return {{"round", run.round},
          {"replicas", run.replicas},
          {"step_ms", n.step_ms},
          {"backward_ms", n.backward_ms},
          {"exposed_ms", n.exposed_ms},
          {"skew_ms", n.skew_ms},
          {"overlap", or_null(n.overlap)},
          {"outlier_steps", n.outlier_steps},
          {"spin_before_ms", run.spins.before_ms},
          {"spin_after_ms", run.spins.after_ms}};
}

Json line_json(const SweepDocument& document, const CellResult& line) {
  Json varied = Json::object(), runs = Json::array();
  for (const auto& [pointer, value] : line.cell.varied) varied[pointer] = Json::parse(value);
  for (const SweepRun& run : line.runs) runs.push_back(run_json(run));
  const bool spans = has_interval(line);
  Json json = {{"label", label_of(line.cell)},
               {"world_size", line.cell.world_size},
               {"reducer", line.cell.reducer},
               {"bucket_cap_mb", or_null(line.cell.cap_mb)},
               {"same_caps_mb", line.cell.same_caps_mb},
               {"varied", std::move(varied)},
               {"step_ms", estimate_json(line.step_ms, spans)},
               {"backward_ms", estimate_json(line.backward_ms, spans)},
               {"exposed_ms", estimate_json(line.exposed_ms, spans)},
               {"overlap", estimate_json(line.overlap, spans)},
               {"skew_ms", estimate_json(line.skew_ms, spans)},
               {"tail_mb", line.tail_mb},
               {"buckets", line.buckets},
               {"wrong", line.wrong},
               {"not_compared", line.not_compared},
               {"outlier_runs", line.outlier_runs},
               {"published", nullptr},
               {"predicted_ms", nullptr},
               {"prediction_error", nullptr},
               {"not_predicted", nullptr},
               {"runs", std::move(runs)}};
  const auto place = static_cast<size_t>(&line - document.lines.data());
  if (document.simulated) json["predicted_ms"] = or_null(document.simulated->step_ms[place]);
  json["prediction_error"] = or_null(prediction_error(document, place));
  if (const std::string why = why_not_predicted(document, place); !why.empty())
    json["not_predicted"] = why;
  if (document.reference) json["published"] = or_null(published_for(*document.reference, line));
  return json;
}

Json contrasts_json(const SweepDocument& document, const std::vector<Contrast>& contrasts) {
  Json all = Json::array();
  for (const Contrast& one : contrasts)
    all.push_back({{"label", label_of(document.lines[one.cell].cell)},
                   {"against", label_of(document.lines[one.against].cell)},
                   {"ratio", estimate_json(one.ratio, one.rounds > 1)},
                   {"rounds", one.rounds},
                   {"rounds_needed", one.rounds_needed},
                   {"significant", one.significant},
                   {"text", one.text}});
  return all;
}

Json judgement_json(const Judgement& judgement) {
  return {{"verdict", judgement.verdict}, {"lines", judgement.lines}};
}

Json reference_json(const SweepDocument& document) {
  if (!document.reference) return nullptr;
  Json all = Json::array();
  for (const CurveAgreement& one : agreements(*document.reference, document.lines))
    all.push_back({{"group", one.group},
                   {"lines", one.lines},
                   {"mean_error", one.mean_error},
                   {"largest_error", one.largest_error},
                   {"correlation", one.correlation},
                   {"tail_correlation", one.tail_ours},
                   {"tail_correlation_published", one.tail_published}});
  return {{"source", document.reference->source},
          {"metric", document.reference->metric},
          {"agreement", std::move(all)}};
}

Json simulated_json(const SweepDocument& document) {
  if (!document.simulated) return nullptr;
  const PredictionError error = prediction_error(document);
  return {{"calibrated_on", document.simulated->calibrated_on},
          {"compared", error.lines},
          {"mean_error", error.mean},
          {"largest_error", error.largest}};
}

Json sweep_json(const SweepDocument& document) {
  Json lines = Json::array(), thresholds = Json::array(), predictions = Json::array();
  for (const CellResult& line : document.lines) lines.push_back(line_json(document, line));
  for (const auto& [threshold, judgement] : document.thresholds) {
    thresholds.push_back(judgement_json(judgement));
    thresholds.back()["threshold"] = threshold.text();
  }
  for (const auto& one : document.predictions)
    predictions.push_back(
        {{"group", one.group}, {"bucket_cap_mb", one.cap_mb}, {"backward_ms", one.backward_ms}});
  const MachineVerdict& watch = document.watch;
  return {{"scenario", document.scenario},
          {"file", document.file},
          {"steps", document.steps},
          {"warmup", document.warmup},
          {"rounds", document.rounds},
          {"runs", document.runs},
          {"wrong", document.wrong},
          {"combinations", std::move(lines)},
          {"recommendations", contrasts_json(document, document.caps)},
          {"reducers", contrasts_json(document, document.reducers)},
          {"predictions", std::move(predictions)},
          {"simulated", simulated_json(document)},
          {"reference", reference_json(document)},
          {"thresholds", std::move(thresholds)},
          {"baseline", document.baseline ? judgement_json(*document.baseline) : Json(nullptr)},
          {"machine_watch",
           {{"verdict", watch.verdict},
            {"allow_busy", document.allow_busy},
            {"runs", watch.runs},
            {"contaminated", watch.contaminated},
            {"repeated", watch.repeated},
            {"quickest_ms", watch.quickest_ms},
            {"median_ms", watch.median_ms}}},
          {"broken", document.broken}};
}

}  // namespace

Json as_json(const SweepDocument& document) {
  return with_head({{"seed", document.seed},
                    {"verdict", document.verdict},
                    {"exit_code", document.exit_code},
                    {"duration_ms", document.duration_ms},
                    {"machine", as_json(document.machine)},
                    {"libraries", as_json(document.libraries)},
                    {"sweep", sweep_json(document)}});
}

}  // namespace lockstep
