#include "sim/report/timeline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "sim/analysis/metrics.h"
#include "sim/report/svg/figure.h"
#include "sim/report/text_style.h"

namespace lockstep {
namespace {

double length_of(const StepMetrics& step) {
  double sum = 0;
  for (const RankNumbers& rank : step.ranks) sum += rank.step_ms;
  return sum / static_cast<double>(std::max<size_t>(1, step.ranks.size()));
}

svg::Histogram skews_of(const Timeline& timeline, const std::vector<int64_t>& steps) {
  svg::Histogram chart;
  chart.title = "Skew: how far apart ranks arrive at a collective";
  chart.x.title = "skew (ms)";
  chart.counted = "collectives";
  const std::set<int64_t> measured(steps.begin(), steps.end());
  for (const Collective& b : timeline.collectives)
    if (b.ranks.size() > 1 && measured.count(b.step) > 0 && entered_by_all(b))
      chart.values.push_back(static_cast<double>(skew_ns(b)) * 1e-6);
  if (chart.values.empty()) return chart;
  const auto count = static_cast<int64_t>(chart.values.size());
  const auto measured_count = static_cast<int64_t>(measured.size());
  chart.notes.push_back(fmt::format("{} {} of {} measured {}.", grouped(count),
                                    plural(count, "collective"), grouped(measured_count),
                                    plural(measured_count, "step")));
  // One that is far from all others would leave one bar of them.
  const auto [low, high] = std::minmax_element(chart.values.begin(), chart.values.end());
  if (*low > 0 && *high > 32 * svg::quantile_of(chart.values, 0.5))
    chart.x.scale = svg::Scale::log2;
  return chart;
}

std::optional<int64_t> typical_step(const Timeline& timeline, const Metrics& metrics) {
  std::vector<std::pair<double, int64_t>> lengths;
  for (const StepMetrics& step : metrics.per_step) lengths.emplace_back(length_of(step), step.step);
  std::sort(lengths.begin(), lengths.end());
  if (!lengths.empty()) return lengths[(lengths.size() - 1) / 2].second;
  if (!timeline.steps.empty()) return timeline.steps.back().step;
  const std::vector<int64_t> steps = drawable_steps(timeline);
  return steps.empty() ? std::nullopt : std::optional(steps.back());
}

}  // namespace

std::vector<int64_t> drawable_steps(const Timeline& timeline) {
  std::set<int64_t> steps;
  for (const auto& phases : timeline.phases)
    for (const PhaseInterval& phase : phases)
      if (phase.step > 0 && is_drawn(phase.phase)) steps.insert(phase.step);
  return {steps.begin(), steps.end()};
}

std::optional<int64_t> typical_step(const Timeline& timeline) {
  return typical_step(timeline, metrics_of(timeline));
}

std::string timeline_svg(const Timeline& timeline, const TimelinePicture& picture) {
  svg::Figure figure;
  figure.title = picture.name;
  const Metrics metrics = metrics_of(timeline);
  const std::vector<int64_t>& measured = metrics.steps;
  const auto typical = typical_step(timeline, metrics);
  const auto step = picture.step ? picture.step : typical;
  if (step) {
    svg::Gantt gantt = step_chart(timeline, picture, *step);
    if (step == typical && measured.size() > 1)
      gantt.notes.insert(gantt.notes.begin(),
                         fmt::format("Of the {} measured steps it has the median length.",
                                     grouped(static_cast<int64_t>(measured.size()))));
    figure.charts.emplace_back(std::move(gantt));
  }
  figure.charts.emplace_back(skews_of(timeline, measured));
  figure.description =
      fmt::format("What each of {} ranks did in {}, and the skew of collectives.",
                  grouped(timeline.world_size), step ? fmt::format("step {}", *step) : "no step");
  figure.notes = picture.notes;
  return svg_of(figure);
}

namespace {

constexpr size_t kMostRanks = 16, kMostLate = 8, kMostCollectives = 40;

enum Kind : size_t { kForward, kBackward, kWait, kOptimizer, kLoad, kLateness, kTransfer };

std::vector<svg::BarKind> bar_kinds() {
  using svg::Texture;
  return {{"forward", 0, Texture::solid},
          {"backward", 1, Texture::solid},
          {"wait for communication", svg::kNeutral, Texture::hatched},
          {"optimizer", 2, Texture::dotted},
          {"load", 4, Texture::dotted},
          {"comm: until the last rank arrives", 3, Texture::hatched},
          {"comm: transfer", 3, Texture::solid}};
}

std::optional<Kind> kind_of(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return kForward;
    case Phase::backward:
      return kBackward;
    case Phase::wait:
      return kWait;
    case Phase::optimizer:
      return kOptimizer;
    case Phase::load:
      return kLoad;
    default:
      return std::nullopt;
  }
}

// Draws one step.
class StepChart {
 public:
  StepChart(const Timeline& timeline, const TimelinePicture& picture, int64_t step)
      : timeline_(timeline), picture_(picture), step_(step), begin_ns_(begin_of(timeline, step)) {
    for (const Collective& b : timeline.collectives)
      if (b.step == step) collectives_.push_back(&b);
    all_collectives_ = collectives_.size();
    keep_longest();
    choose_ranks();
  }

  svg::Gantt chart() {
    svg::Gantt gantt;
    gantt.title = fmt::format("Step {}: ranks and buckets", step_);
    gantt.x.title = "time since the first rank began the step (ms)";
    gantt.mark_meaning = "a fault acts";
    gantt.kinds = bar_kinds();
    for (const size_t rank : ranks_) gantt.rows.push_back(row_of(rank));
    add_notes(&gantt.notes);
    return gantt;
  }

 private:
  static int64_t begin_of(const Timeline& timeline, int64_t step) {
    std::optional<int64_t> begin;
    for (const auto& phases : timeline.phases)
      for (const PhaseInterval& phase : phases)
        if (phase.step == step && kind_of(phase.phase))
          begin = std::min(begin.value_or(phase.time.begin_ns), phase.time.begin_ns);
    return begin.value_or(timeline.origin_ns);
  }

  double ms(int64_t time_ns) const { return static_cast<double>(time_ns - begin_ns_) * 1e-6; }

  static int64_t length_of(const Collective& b) {
    int64_t longest = 0;
    for (const Passage& passage : b.ranks) {
      if (!passage.arrival_ns) continue;
      if (!passage.end_ns) return INT64_MAX;  // what never ended is looked for first
      longest = std::max(longest, *passage.end_ns - *passage.arrival_ns);
    }
    return longest;
  }
  void keep_longest() {
    if (collectives_.size() <= kMostCollectives) return;
    std::stable_sort(
        collectives_.begin(), collectives_.end(),
        [](const Collective* a, const Collective* b) { return length_of(*a) > length_of(*b); });
    collectives_.resize(kMostCollectives);
    std::sort(collectives_.begin(), collectives_.end(),
              [](const Collective* a, const Collective* b) { return a->sequence < b->sequence; });
  }

  // Where a fault acts, who came last, and others evenly among all.
  void choose_ranks() {
    const size_t count = timeline_.phases.size();
    std::vector<std::pair<int64_t, size_t>> late;  // by how much they came last, negative
    for (size_t rank = 0; rank < count; ++rank) late.emplace_back(0, rank);
    for (const Collective& b : timeline_.collectives)
      if (b.step == step_ && entered_by_all(b))
        if (const Latest latest = latest_of(b); latest.rank)
          late[*latest.rank].first -= latest.gap_ns;
    for (const auto& fault : picture_.faults)
      if (acts_here(fault) && fault.rank < count) late[fault.rank].first = INT64_MIN;
    std::sort(late.begin(), late.end());
    for (size_t i = 0; i < std::min(count, kMostLate) && late[i].first < 0; ++i)
      ranks_.insert(late[i].second);
    for (size_t i = 0; ranks_.size() < std::min(count, kMostRanks); ++i)
      ranks_.insert(i < kMostRanks ? i * count / kMostRanks : i - kMostRanks);
  }

  bool acts_here(const FaultMark& fault) const {
    if (fault.rank >= timeline_.phases.size()) return false;
    const auto& phases = timeline_.phases[fault.rank];
    return std::any_of(phases.begin(), phases.end(), [&](const PhaseInterval& phase) {
      return phase.step == step_ && fault.time_ns >= phase.time.begin_ns &&
             fault.time_ns <= phase.time.end_ns;
    });
  }

  svg::Row row_of(size_t rank) {
    svg::Row row{.name = fmt::format("rank {}", rank), .tracks = {}, .marks = {}};
    svg::Track compute{.name = "compute", .bars = {}}, comm{.name = "comm", .bars = {}};
    for (const PhaseInterval& phase : timeline_.phases[rank])
      if (const auto kind = kind_of(phase.phase); kind && phase.step == step_)
        compute.bars.push_back(bar_of(rank, phase, *kind));
    for (const Collective* b : collectives_)
      if (b->ranks[rank].arrival_ns) comm.bars.push_back(bar_of(rank, *b));
    for (const auto& fault : picture_.faults)
      if (fault.rank == rank && acts_here(fault))
        row.marks.push_back(
            {ms(fault.time_ns), fmt::format("{} at {:.3f} ms", fault.name, ms(fault.time_ns))});
    row.tracks = {std::move(compute), std::move(comm)};
    return row;
  }

  svg::Bar bar_of(size_t rank, const PhaseInterval& phase, Kind kind) const {
    const char* name = to_word(phase.phase);
    const double begin = ms(phase.time.begin_ns), end = ms(phase.time.end_ns);
    svg::Bar bar;
    bar.parts = {{begin, end, kind}};
    bar.label = name;
    bar.note = fmt::format("rank {}: {} {:.3f} ms, from {:.3f} to {:.3f} ms", rank, name,
                           end - begin, begin, end);
    return bar;
  }

  svg::Bar bar_of(size_t rank, const Collective& b) const {
    const Passage& own = b.ranks[rank];
    const int64_t arrival_ns = *own.arrival_ns;
    const int64_t end_ns = own.end_ns.value_or(std::max(last_sign_of(rank), arrival_ns));
    // When the last of all ranks is there; until the end, where one never comes.
    int64_t last_ns = end_ns;
    if (entered_by_all(b)) {
      last_ns = arrival_ns;
      for (const Passage& passage : b.ranks) last_ns = std::max(last_ns, *passage.arrival_ns);
    }
    svg::Bar bar;
    bar.open = !own.end_ns;
    const int64_t split_ns = std::min(last_ns, end_ns);
    if (split_ns > arrival_ns) bar.parts.push_back({ms(arrival_ns), ms(split_ns), kLateness});
    if (split_ns < end_ns || bar.parts.empty())
      bar.parts.push_back({ms(split_ns), ms(end_ns), kTransfer});
    bar.label = b.bucket >= 0 ? fmt::format("bucket {}", b.bucket) : operation_of(b);
    bar.note = note_of(rank, b, last_ns);
    return bar;
  }

  std::string note_of(size_t rank, const Collective& b, int64_t last_ns) const {
    const Passage& own = b.ranks[rank];
    std::string note = fmt::format("rank {}: {} {}", rank, operation_of(b), b.sequence);
    if (b.bucket >= 0) note += fmt::format(", bucket {}", b.bucket);
    note += fmt::format(", {:.3f} MB; arrives at {:.3f} ms", static_cast<double>(b.bytes) * 1e-6,
                        ms(*own.arrival_ns));
    note += entered_by_all(b) ? fmt::format(", the last rank at {:.3f} ms", ms(last_ns))
                              : ", not all ranks do";
    if (own.launched_ns) note += fmt::format(", on the wire at {:.3f} ms", ms(*own.launched_ns));
    return note + (own.end_ns ? fmt::format(", ends at {:.3f} ms", ms(*own.end_ns))
                              : std::string(", never ends"));
  }

  // The end of the rank's last phase of this step.
  int64_t last_sign_of(size_t rank) const {
    int64_t last_ns = begin_ns_;
    for (const PhaseInterval& phase : timeline_.phases[rank])
      if (phase.step == step_) last_ns = std::max(last_ns, phase.time.end_ns);
    return last_ns;
  }

  void add_notes(std::vector<std::string>* notes) const {
    const auto count = [](size_t number) { return grouped(static_cast<int64_t>(number)); };
    if (ranks_.size() < timeline_.phases.size())
      notes->push_back(fmt::format(
          "{} of {} ranks are drawn: those where a fault acts or that came last by the most, and "
          "others evenly among the rest.",
          ranks_.size(), count(timeline_.phases.size())));
    if (collectives_.size() < all_collectives_)
      notes->push_back(fmt::format("{} of {} collectives are drawn: the longest.",
                                   collectives_.size(), count(all_collectives_)));
    const auto elsewhere = std::count_if(picture_.faults.begin(), picture_.faults.end(),
                                         [&](const auto& fault) { return !acts_here(fault); });
    if (elsewhere > 0)
      notes->push_back(fmt::format("Faults acted {} {} outside of this step.", grouped(elsewhere),
                                   plural(elsewhere, "time")));
    for (const Timeline::LeftOut& left : timeline_.left_out)
      if (left.step == step_) notes->push_back("Metrics leave this step out: " + left.why + ".");
  }

  const Timeline& timeline_;
  const TimelinePicture& picture_;
  const int64_t step_, begin_ns_;
  std::vector<const Collective*> collectives_;  // that are drawn, ascending sequence
  size_t all_collectives_ = 0;
  std::set<size_t> ranks_;
};

}  // namespace

bool is_drawn(Phase phase) { return kind_of(phase).has_value(); }

bool entered_by_all(const Collective& b) {
  return std::all_of(b.ranks.begin(), b.ranks.end(),
                     [](const Passage& passage) { return passage.arrival_ns.has_value(); });
}

svg::Gantt step_chart(const Timeline& timeline, const TimelinePicture& picture, int64_t step) {
  return StepChart(timeline, picture, step).chart();
}

}  // namespace lockstep
