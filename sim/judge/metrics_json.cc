#include <nlohmann/json.hpp>

#include "scenarios/json/json_text.h"
#include "sim/judge/metrics.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

void put(const RankNumbers& numbers, Json* json) {
  (*json)["ready_ms"] = numbers.ready_ms;
  (*json)["arrival_ms"] = numbers.arrival_ms;
  (*json)["wait_ms"] = numbers.wait_ms;
  (*json)["transfer_ms"] = numbers.transfer_ms;
  (*json)["compute_ms"] = numbers.compute_ms;
  (*json)["comm_ms"] = numbers.comm_ms;
  (*json)["exposed_ms"] = numbers.exposed_ms;
  (*json)["ddp_overlap_ms"] = numbers.ddp_overlap_ms;
  (*json)["blame_ms"] = numbers.blame_ms;
  (*json)["work_ms"] = numbers.work_ms;
  (*json)["step_ms"] = numbers.step_ms;
}

Json rank_json(const RankMetrics& rank, size_t index) {
  Json json = {{"rank", index}};
  put(rank.mean, &json);
  json["overlap"] = or_null(rank.overlap);
  json["slowdown"] = or_null(rank.slowdown);
  json["relative_score"] = or_null(rank.relative_score);
  json["individual_score"] = or_null(rank.individual_score);
  return json;
}

Json spikes_json(const Metrics& metrics) {
  Json spikes = Json::array();
  for (const StepMetrics& step : metrics.per_step)
    if (!step.spikes.empty())
      spikes.push_back({{"step", step.step},
                        {"ranks", step.spikes},
                        {"system_wide", step.spikes.size() == metrics.ranks.size()}});
  return spikes;
}

Json step_json(const StepMetrics& step) {
  Json ranks = Json::array();
  for (size_t rank = 0; rank < step.ranks.size(); ++rank) {
    Json& json = ranks.emplace_back(Json{{"rank", rank}});
    put(step.ranks[rank], &json);
    json["overlap"] = or_null(step.ranks[rank].overlap());
  }
  return {{"step", step.step},
          {"skew_ms", step.skew_ms},
          {"step_ms", or_null(step.step_ms)},
          {"ideal_ms", or_null(step.ideal_ms)},
          {"ranks", std::move(ranks)}};
}

// Times since the run's first event.
class Raw {
 public:
  explicit Raw(const Timeline& timeline) : timeline_(timeline) {}

  Json collectives() const {
    Json all = Json::array();
    for (const Collective& b : timeline_.collectives) all.push_back(collective(b));
    return all;
  }

  Json phases() const {
    Json all = Json::array();
    for (size_t rank = 0; rank < timeline_.phases.size(); ++rank)
      for (const PhaseInterval& phase : timeline_.phases[rank])
        all.push_back({{"rank", rank},
                       {"step", phase.step},
                       {"phase", to_word(phase.phase)},
                       {"begin_ms", ms(phase.time.begin_ns)},
                       {"end_ms", ms(phase.time.end_ns)}});
    return all;
  }

 private:
  Json ms(const std::optional<int64_t>& time_ns) const {
    if (!time_ns) return nullptr;
    return static_cast<double>(*time_ns - timeline_.origin_ns) * 1e-6;
  }

  Json collective(const Collective& b) const {
    bool entered = true;
    for (const Passage& passage : b.ranks) entered = entered && passage.arrival_ns;
    Json ranks = Json::array();
    for (size_t rank = 0; rank < b.ranks.size(); ++rank) {
      const Passage& passage = b.ranks[rank];
      const auto length = [](int64_t ns) { return Json(static_cast<double>(ns) * 1e-6); };
      ranks.push_back({{"rank", rank},
                       {"ready_ms", ms(passage.ready_ns)},
                       {"arrival_ms", ms(passage.arrival_ns)},
                       {"launched_ms", ms(passage.launched_ns)},
                       {"end_ms", ms(passage.end_ns)},
                       {"wait_ms", entered ? length(wait_ns(b, rank)) : Json(nullptr)},
                       {"transfer_ms",
                        entered && passage.end_ns ? length(transfer_ns(b, rank)) : Json(nullptr)}});
    }
    return {{"sequence", b.sequence},
            {"operation", operation_of(b)},
            {"bucket", b.bucket >= 0 ? Json(b.bucket) : Json(nullptr)},
            {"bytes", b.bytes},
            {"step", b.step},
            {"skew_ms", entered ? Json(static_cast<double>(skew_ns(b)) * 1e-6) : Json(nullptr)},
            {"ranks", std::move(ranks)}};
  }

  const Timeline& timeline_;
};

}  // namespace

Json as_json(const Metrics& metrics, const Timeline* intervals) {
  Json ranks = Json::array(), left_out = Json::array();
  for (size_t rank = 0; rank < metrics.ranks.size(); ++rank)
    ranks.push_back(rank_json(metrics.ranks[rank], rank));
  for (const Timeline::LeftOut& step : metrics.left_out)
    left_out.push_back({{"step", step.step}, {"why", step.why}});
  Json json = {{"steps", metrics.steps},
               {"left_out", std::move(left_out)},
               {"clock_uncertainty_ms", metrics.clock_uncertainty_ms},
               {"step_ms", or_null(metrics.step_ms)},
               {"ideal_ms", or_null(metrics.ideal_ms)},
               {"slowdown", or_null(metrics.slowdown)},
               {"skew_ms", metrics.skew_ms},
               {"ranks", std::move(ranks)},
               {"spikes", spikes_json(metrics)}};
  if (intervals == nullptr) return json;
  Json& per_step = json["per_step"] = Json::array();
  for (const StepMetrics& step : metrics.per_step) per_step.push_back(step_json(step));
  json["collectives"] = Raw(*intervals).collectives();
  json["phases"] = Raw(*intervals).phases();
  return json;
}

}  // namespace lockstep
