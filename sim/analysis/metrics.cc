#include "sim/analysis/metrics.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

double ms(int64_t ns) { return static_cast<double>(ns) * 1e-6; }

std::pair<int64_t, int64_t> first_and_last_arrival(const Collective& b) {
  int64_t first = INT64_MAX, last = INT64_MIN;
  for (const Passage& passage : b.ranks) {
    first = std::min(first, *passage.arrival_ns);
    last = std::max(last, *passage.arrival_ns);
  }
  return {first, last};
}

// A collective, and what is the same for all of its ranks.
struct Met {
  const Collective* collective = nullptr;
  int64_t last_ns = 0;  // the last rank's arrival
  Latest latest;
};

std::vector<Met> met_in(const Timeline& timeline, const Step& step) {
  std::vector<Met> met;
  for (const size_t place : step.collectives) {
    const Collective& collective = timeline.collectives[place];
    met.push_back({&collective, first_and_last_arrival(collective).second, latest_of(collective)});
  }
  return met;
}

// What is summed and merged over the collectives of one rank's step.
class StepReader {
 public:
  StepReader(const std::vector<Met>& met, const Step& step, size_t rank)
      : met_(met), own_(step.ranks[rank]), rank_(rank) {}

  RankNumbers read() {
    for (const Met& met : met_) add(met);
    std::vector<Interval> compute;
    for (const PhaseInterval& phase : own_.phases) {
      if (phase.phase != Phase::forward && phase.phase != Phase::backward) continue;
      compute.push_back(phase.time);
      if (phase.phase == Phase::backward) backward_end_ns_ = phase.time.end_ns;
    }
    compute = merged(compute);
    comm_ = merged(comm_);
    numbers_.step_ms = ms(own_.time.length_ns());
    numbers_.wait_ms = ms(length_ns(merged(wait_)));
    numbers_.transfer_ms = ms(length_ns(merged(transfer_)));
    numbers_.compute_ms = ms(length_ns(compute));
    numbers_.comm_ms = ms(length_ns(comm_));
    numbers_.overlapped_ms = ms(length_ns(intersection(comm_, compute)));
    numbers_.exposed_ms = ms(length_ns(comm_) - length_ns(intersection(comm_, compute)));
    if (first_bucket_ns_)
      numbers_.ddp_overlap_ms = ms(std::max<int64_t>(0, backward_end_ns_ - *first_bucket_ns_));
    return numbers_;
  }

 private:
  void add(const Met& met) {
    const Passage& own = met.collective->ranks[rank_];
    comm_.push_back({*own.arrival_ns, *own.end_ns});
    wait_.push_back({*own.arrival_ns, met.last_ns});
    transfer_.push_back({met.last_ns, *own.end_ns});
    if (met.latest.rank == rank_) numbers_.blame_ms += ms(met.latest.gap_ns);
    if (met.collective->bucket < 0) return;
    if (!first_bucket_ns_) first_bucket_ns_ = own.arrival_ns;
    const int64_t begin_ns = own_.time.begin_ns;
    numbers_.arrival_ms = std::max(numbers_.arrival_ms, ms(*own.arrival_ns - begin_ns));
    numbers_.ready_ms =
        std::max(numbers_.ready_ms, ms(own.ready_ns.value_or(*own.arrival_ns) - begin_ns));
  }

  const std::vector<Met>& met_;
  const RankStep& own_;
  const size_t rank_;
  RankNumbers numbers_;
  std::vector<Interval> comm_, wait_, transfer_;
  std::optional<int64_t> first_bucket_ns_;
  int64_t backward_end_ns_ = 0;
};

StepMetrics metrics_of(const Timeline& timeline, const Step& step) {
  StepMetrics metrics;
  metrics.step = step.step;
  const std::vector<Met> met = met_in(timeline, step);
  for (size_t rank = 0; rank < step.ranks.size(); ++rank)
    metrics.ranks.push_back(StepReader(met, step, rank).read());
  for (const size_t place : step.collectives)
    metrics.skew_ms = std::max(metrics.skew_ms, ms(skew_ns(timeline.collectives[place])));
  const auto model = model_of(timeline, step);
  if (!model) return metrics;
  metrics.step_ms = model->step_ns() * 1e-6;
  metrics.ideal_ms = model->ideal().step_ns() * 1e-6;
  for (size_t rank = 0; rank < step.ranks.size(); ++rank)
    metrics.ranks[rank].work_ms = model->work_ns(rank) * 1e-6;
  for (const double ns : model->only_ns()) metrics.only_ms.push_back(ns * 1e-6);
  return metrics;
}

// `add` of every member, and then a factor: how means are made.
void add(const RankNumbers& other, double factor, RankNumbers* sum) {
  for (double RankNumbers::*member :
       {&RankNumbers::ready_ms, &RankNumbers::arrival_ms, &RankNumbers::wait_ms,
        &RankNumbers::transfer_ms, &RankNumbers::compute_ms, &RankNumbers::comm_ms,
        &RankNumbers::overlapped_ms, &RankNumbers::exposed_ms, &RankNumbers::ddp_overlap_ms,
        &RankNumbers::blame_ms, &RankNumbers::work_ms, &RankNumbers::step_ms})
    sum->*member += other.*member * factor;
}

// A number of each step that has a model.
template <class Get>
std::vector<double> over_models(const Metrics& metrics, Get get) {
  std::vector<double> values;
  for (const StepMetrics& step : metrics.per_step)
    if (step.step_ms) values.push_back(get(step));
  return values;
}

void fill_spikes(Metrics* metrics) {
  for (size_t rank = 0; rank < metrics->ranks.size(); ++rank) {
    const auto works = over_models(*metrics, [&](auto& step) { return step.ranks[rank].work_ms; });
    if (works.empty()) return;
    const double usual = median_of(works);
    for (StepMetrics& step : metrics->per_step)
      if (step.ranks[rank].work_ms > std::max(usual * kSpike, usual + kLeastMs))
        step.spikes.push_back(rank);
  }
}

void fill_scores(Metrics* metrics) {
  std::vector<double> usual;
  for (size_t rank = 0; rank < metrics->ranks.size(); ++rank) {
    const auto works = over_models(*metrics, [&](auto& step) { return step.ranks[rank].work_ms; });
    if (works.empty()) return;
    usual.push_back(median_of(works));
    if (usual.back() > 0)
      metrics->ranks[rank].individual_score =
          *std::min_element(works.begin(), works.end()) / usual.back();
  }
  const double best = *std::min_element(usual.begin(), usual.end());
  for (size_t rank = 0; rank < usual.size(); ++rank)
    if (usual[rank] > 0) metrics->ranks[rank].relative_score = best / usual[rank];
}

void fill_slowdowns(Metrics* metrics) {
  const auto real = over_models(*metrics, [](auto& step) { return *step.step_ms; });
  if (real.empty()) return;
  metrics->step_ms = mean_of(real);
  metrics->ideal_ms = mean_of(over_models(*metrics, [](auto& step) { return *step.ideal_ms; }));
  if (*metrics->ideal_ms <= 0) return;
  metrics->slowdown = *metrics->step_ms / *metrics->ideal_ms;
  for (size_t rank = 0; rank < metrics->ranks.size(); ++rank)
    metrics->ranks[rank].slowdown =
        mean_of(over_models(*metrics, [&](auto& step) { return step.only_ms[rank]; })) /
        *metrics->ideal_ms;
}

void fill_means(Metrics* metrics) {
  const auto count = static_cast<double>(metrics->per_step.size());
  for (const StepMetrics& step : metrics->per_step) {
    metrics->skew_ms += step.skew_ms / count;
    for (size_t rank = 0; rank < metrics->ranks.size(); ++rank)
      add(step.ranks[rank], 1 / count, &metrics->ranks[rank].mean);
  }
  for (RankMetrics& rank : metrics->ranks) rank.overlap = rank.mean.overlap();
}

// The first step that any rank recorded: of a run that went on from a checkpoint not number 1.
bool is_first(const Timeline& timeline, int64_t step) {
  if (!timeline.left_out.empty() && timeline.left_out.front().step < step) return false;
  return timeline.steps.front().step == step;
}

}  // namespace

int64_t skew_ns(const Collective& b) {
  const auto [first, last] = first_and_last_arrival(b);
  return last - first;
}

int64_t wait_ns(const Collective& b, size_t rank) {
  return first_and_last_arrival(b).second - *b.ranks[rank].arrival_ns;
}

int64_t transfer_ns(const Collective& b, size_t rank) {
  return *b.ranks[rank].end_ns - first_and_last_arrival(b).second;
}

Latest latest_of(const Collective& b) {
  Latest latest;
  if (b.ranks.size() < 2) return latest;
  int64_t last = INT64_MIN, second = INT64_MIN;
  for (size_t rank = 0; rank < b.ranks.size(); ++rank) {
    const int64_t arrival = *b.ranks[rank].arrival_ns;
    if (arrival > last) {
      second = last;
      last = arrival;
      latest.rank = rank;
    } else {
      second = std::max(second, arrival);
    }
  }
  latest.gap_ns = last - second;
  if (latest.gap_ns == 0) latest.rank.reset();
  return latest;
}

std::optional<double> RankNumbers::overlap() const {
  if (comm_ms <= 0) return std::nullopt;
  return overlapped_ms / comm_ms;
}

Metrics metrics_of(const Timeline& timeline) {
  Metrics metrics;
  metrics.left_out = timeline.left_out;
  metrics.clock_uncertainty_ms = ms(timeline.clock_uncertainty_ns);
  for (const Step& step : timeline.steps) {
    if (is_first(timeline, step.step)) continue;
    metrics.steps.push_back(step.step);
    metrics.per_step.push_back(metrics_of(timeline, step));
  }
  if (metrics.steps.empty()) return metrics;
  metrics.ranks.resize(static_cast<size_t>(timeline.world_size));
  fill_means(&metrics);
  fill_slowdowns(&metrics);
  fill_scores(&metrics);
  fill_spikes(&metrics);
  return metrics;
}

std::vector<StepModel> models_of(const Timeline& timeline) {
  std::vector<StepModel> models;
  for (const Step& step : timeline.steps) {
    if (is_first(timeline, step.step)) continue;
    if (auto model = model_of(timeline, step)) models.push_back(std::move(*model));
  }
  return models;
}

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
