#include "sim/judge/rank_view.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "golden/compare.h"
#include "reducer/probe.h"
#include "scenarios/base/error.h"
#include "scenarios/manifest.h"
#include "sim/plan/plans.h"

namespace lockstep {
namespace {

class Reader {
 public:
  Reader(RankView* view, double bound) : view_(*view), bound_(bound) {}

  void read(const Event& event) {
    const auto kind = static_cast<EventKind>(event.kind);
    if (kind == EventKind::double_run) {
      primary_ = false;
    } else if (primary_) {
      read_primary(kind, event);
    }
    if (kind == EventKind::check) read_check(event);
    read_lane(kind, event);
    read_whereabouts(kind, event);
  }

 private:
  LaneTrace* trace(const Event& event) {
    const auto index = static_cast<size_t>(event.subject);
    return event.subject > 0 && index < RankView::kLanes ? &view_.lanes[index] : nullptr;
  }

  void read_primary(EventKind kind, const Event& event) {
    switch (kind) {
      case EventKind::state_hash:
        if (event.subject >= 0 && static_cast<size_t>(event.subject) < kStateKinds)
          view_.chains[static_cast<size_t>(event.subject)].emplace_back(event.step, event.value);
        break;
      case EventKind::collective_hash:
        view_.collectives.emplace_back(event.step, event.value);
        break;
      case EventKind::arrival:
        view_.arrivals.push_back(event);
        break;
      case EventKind::loss:
        view_.losses.emplace_back(event.step, std::bit_cast<double>(event.value));
        break;
      case EventKind::golden_loss:
        view_.golden_losses.emplace_back(event.step, std::bit_cast<double>(event.value));
        break;
      case EventKind::norm_ratio:
        view_.norm_ratios.emplace_back(event.step, std::bit_cast<double>(event.value));
        break;
      case EventKind::close:
        view_.close = event.value != 0;
        break;
      case EventKind::step_end:
        view_.last_step_end = event.step;
        break;
      case EventKind::primary_done:
        view_.primary_done = true;
        break;
      case EventKind::final_hash_low:
        hash()[0] = event.value;
        break;
      case EventKind::final_hash_high:
        hash()[1] = event.value;
        break;
      default:
        break;
    }
  }

  std::array<uint64_t, 2>& hash() {
    if (!view_.final_hash) view_.final_hash.emplace();
    return *view_.final_hash;
  }

  void read_check(const Event& event) {
    const auto check = static_cast<Check>(event.subject);
    for (auto& [known, passed] : view_.checks) {
      if (known != check) continue;
      passed = passed && event.value != 0;
      return;
    }
    view_.checks.emplace_back(check, event.value != 0);
  }

  void read_lane(EventKind kind, const Event& event) {
    LaneTrace* lane = trace(event);
    if (lane == nullptr) return;
    switch (kind) {
      case EventKind::compared:
        lane->compared = static_cast<int64_t>(event.value);
        lane->compared_step = event.step;
        break;
      case EventKind::mismatch:
        if (!lane->mismatch_step) lane->mismatch_step = event.step;
        break;
      case EventKind::distance:
        read_distance(lane, event);
        break;
      case EventKind::control:
        lane->control = lane->control.value_or(true) && event.value != 0;
        break;
      case EventKind::statistic:
        lane->statistic.emplace_back(event.step, std::bit_cast<double>(event.value));
        break;
      default:
        break;
    }
  }

  void read_distance(LaneTrace* lane, const Event& event) {
    const double distance = std::bit_cast<double>(event.value);
    keep_worst(distance, &lane->distance);
    if (!lane->beyond_step && !(distance <= bound_)) lane->beyond_step = event.step;
  }

  void read_whereabouts(EventKind kind, const Event& event) {
    switch (kind) {
      case EventKind::phase_begin:
        view_.last_phase = event;
        view_.last_parameter.reset();
        break;
      case EventKind::arrival:
        view_.last_arrival = event.sequence;
        break;
      case EventKind::end:
        view_.last_end = std::max(view_.last_end.value_or(0), event.sequence);
        break;
      case EventKind::parameter_ready:
        view_.last_parameter = event.subject;
        break;
      case EventKind::error:
        view_.error_ns = event.time_ns;
        return;
      case EventKind::finished:
        view_.finished = true;
        return;
      case EventKind::bucket_ready:
      case EventKind::step_end:
        break;
      default:  // a receipt among them: what a rank did is judged without the faults it was given
        return;
    }
    const bool same_step = view_.last_event && view_.last_event->step == event.step;
    view_.events_in_step = same_step ? view_.events_in_step + 1 : 1;
    view_.last_event = event;
  }

  RankView& view_;
  double bound_;
  bool primary_ = true;
};

// What was sent of its records before it was gone is no account of where it was.
bool is_lost(const RunOutcome& outcome, int64_t rank) {
  return std::any_of(outcome.ends.begin(), outcome.ends.end(),
                     [&](const ProcessEnd& end) { return end.rank == rank && end.lost; });
}

}  // namespace

void keep_worst(double value, std::optional<double>* worst) {
  if (!*worst || std::isnan(value) || value > **worst) *worst = value;
}

RankView view_of(const RankRecords& records, double bound) {
  RankView view;
  view.rank = records.rank;
  view.dropped = records.dropped;
  Reader reader(&view, bound);
  for (const Event& event : records.events) reader.read(event);
  return view;
}

std::vector<RankView> views_of(const RunOutcome& outcome) {
  std::vector<RankView> views;
  for (size_t rank = 0; rank < static_cast<size_t>(ranks_of(outcome.plan.scenario)); ++rank) {
    views.push_back(rank < outcome.ranks.size() ? view_of(outcome.ranks[rank], kFloat64Bound)
                                                : RankView{});
    views.back().rank = static_cast<int64_t>(rank);
    views.back().records_lost = is_lost(outcome, static_cast<int64_t>(rank));
    if (rank >= outcome.evidence.size() || outcome.evidence[rank].empty()) continue;
    auto evidence = evidence_from_json_text(outcome.evidence[rank]);
    if (evidence) views.back().evidence = std::move(*evidence);
  }
  return views;
}

std::vector<RankView> views_at(const RunOutcome& outcome, const std::vector<RankView>& views,
                               int64_t time_ns) {
  std::vector<RankView> then = views;
  for (size_t rank = 0; rank < std::min(views.size(), outcome.ranks.size()); ++rank) {
    RankRecords records = outcome.ranks[rank];
    std::erase_if(records.events, [&](const Event& event) { return event.time_ns > time_ns; });
    Evidence evidence = std::move(then[rank].evidence);
    const std::optional<int64_t> error_ns = then[rank].error_ns;  // as whole as the evidence
    const bool lost = then[rank].records_lost;
    then[rank] = view_of(records, kFloat64Bound);
    then[rank].records_lost = lost;
    then[rank].rank = static_cast<int64_t>(rank);
    then[rank].evidence = std::move(evidence);
    then[rank].error_ns = error_ns;
  }
  return then;
}

namespace {

// Records may be damaged: a number that is no operation must not end the judge.
const char* operation_word(uint8_t code) {
  return is_operation(code) ? to_word(static_cast<Operation>(code)) : "collective";
}

std::string size_text(int64_t bytes) {
  if (bytes < 100'000) return fmt::format("{} bytes", bytes);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6);
}

}  // namespace

Explanation::Collective collective_of(const Event& arrival) {
  const PackedCollective packed = unpack_collective(arrival.value);
  Explanation::Collective collective;
  collective.operation = operation_word(packed.operation);
  collective.sequence = arrival.sequence;
  if (arrival.subject >= 0) collective.bucket = arrival.subject;
  if (arrival.subject <= kRootSubject) collective.root = kRootSubject - arrival.subject;
  collective.bytes = packed.bytes;
  return collective;
}

std::string to_words(const Explanation::Collective& collective) {
  const std::string bucket =
      collective.bucket ? fmt::format("bucket {}, ", *collective.bucket) : "";
  const std::string root =
      collective.root
          ? fmt::format("{} rank {}, ", collective.operation == "gather" ? "to" : "from",
                        *collective.root)
          : "";
  return fmt::format("{} {} ({}{}{})", collective.operation, collective.sequence, bucket, root,
                     size_text(collective.bytes));
}

std::string collective_text(const Event& arrival) { return to_words(collective_of(arrival)); }

std::string event_text(const RankView& view) {
  if (!view.last_event) return "";
  const Event& event = *view.last_event;
  switch (static_cast<EventKind>(event.kind)) {
    case EventKind::phase_begin:
      return fmt::format("begin of {}", to_word(static_cast<Phase>(event.phase)));
    case EventKind::arrival:
      return "arrival of " + collective_text(event);
    case EventKind::end:
      for (auto it = view.arrivals.rbegin(); it != view.arrivals.rend(); ++it)
        if (it->sequence == event.sequence) return "end of " + collective_text(*it);
      return fmt::format("end of collective {}", event.sequence);
    case EventKind::parameter_ready:
      return fmt::format("gradient of parameter {} ready", event.subject);
    case EventKind::bucket_ready:
      return fmt::format("bucket {} ready", event.subject);
    default:
      return fmt::format("end of step {}", event.step);
  }
}

std::string where(const RankView* view) {
  if (view == nullptr || !view->last_phase) return "before its first record";
  const Event& event = view->last_event ? *view->last_event : *view->last_phase;
  const char* phase = to_word(static_cast<Phase>(view->last_phase->phase));
  if (event.step <= 0) return fmt::format("in {}", phase);
  return fmt::format("in {} of step {}", phase, event.step);
}

std::string layer_of(const Scenario& scenario, int64_t parameter) {
  const auto manifest = manifest_of(scenario.model, scenario.dtype);
  if (!manifest || parameter < 0 || parameter >= static_cast<int64_t>(manifest->parameters.size()))
    return "";
  return layer_name(manifest->parameters[static_cast<size_t>(parameter)].name);
}

const ProcessEnd* end_of(const RunOutcome& outcome, int64_t rank) {
  for (const ProcessEnd& end : outcome.ends)
    if (end.rank == rank) return &end;
  return nullptr;
}

std::string to_words(const ProcessState& state) {
  switch (state.state) {
    case 'T':
    case 't':
      return fmt::format("stopped (state {})", state.state);
    case 'D':
      return "in uninterruptible sleep (state D)";
    case 'R':
      return "running";
    case 'S':
      if (!state.store_key.empty())
        return fmt::format("waiting for \"{}\" of the store", state.store_key);
      return state.syscall.empty() ? "asleep" : "waiting in " + state.syscall;
    default:
      return "";
  }
}

std::string signal_text(int signal) {
  const char* abbreviation = sigabbrev_np(signal);
  if (abbreviation == nullptr) return fmt::format("signal {}", signal);
  return fmt::format("SIG{} ({})", abbreviation, signal);
}

std::string ranks_text(std::vector<int64_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += fmt::format("{}", ranks[i]);
  }
  return text;
}

std::string duration_text(int64_t ms) {
  if (ms < 1000) return fmt::format("{} ms", ms);
  return fmt::format("{:.1f} s", static_cast<double>(ms) * 1e-3);
}

}  // namespace lockstep
