#include "sim/tools/explain/trace_arrivals.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <set>

#include "scenarios/base/median.h"
#include "scenarios/base/text.h"
#include "sim/tools/explain/late_arrivals.h"

namespace lockstep {
namespace {

constexpr size_t kMostShift = 256;      // calls by which one trace may begin after another
constexpr size_t kCompared = 4096;      // calls of a group, to find that
constexpr double kDoubtfulEnds = 0.35;  // of the lateness: by so much ends may differ
constexpr double kMuchWaiting = 0.25;   // of a step, that healthy ranks do not wait for each other
constexpr double kLeastShare = 0.08;    // of a step, which a lateness takes that is told
constexpr double kNsPerUs = 1000;

// All ranks leave it at the same time.
bool ends_together(const TraceCall& call) {
  return call.operation == "all_reduce" || call.operation == "all_gather" ||
         call.operation == "reduce_scatter" || call.operation == "all_to_all" ||
         call.operation == "barrier";
}

bool is_like(const TraceCall& a, const TraceCall& b) {
  return a.operation == b.operation && a.sizes == b.sizes && a.dtypes == b.dtypes;
}

// How far apart ends are when clocks are aligned by their median difference.
struct Alignment {
  double offset_us = 0;  // of the other clock
  double spread_us = std::numeric_limits<double>::infinity();
};

using Calls = std::vector<const TraceCall*>;

// Of `count` calls, those of `other` from `shift` on; infinite where a call differs from its like.
Alignment aligned(const Calls& one, const Calls& other, size_t shift, size_t count) {
  std::vector<double> apart;
  for (size_t i = 0; i < count; ++i) {
    if (!is_like(*one[i], *other[i + shift])) return {};
    if (ends_together(*one[i]))
      apart.push_back(other[i + shift]->time.end_us - one[i]->time.end_us);
  }
  if (apart.empty()) return {};
  Alignment found;
  found.offset_us = upper_median_of(apart);
  for (double& difference : apart) difference = std::abs(difference - found.offset_us);
  found.spread_us = upper_median_of(apart);
  return found;
}

// A group's calls, rank by rank.
class GroupCalls {
 public:
  void add(size_t trace, Calls calls) {
    traces_.push_back(trace);
    calls_.push_back(std::move(calls));
  }
  size_t ranks() const { return traces_.size(); }
  const std::vector<size_t>& traces() const { return traces_; }
  double spread_us() const { return spread_us_; }
  double came_us(size_t member, size_t call) const {
    return calls_[member][call]->time.begin_us - offsets_us_[member];
  }
  const Calls& calls(size_t member) const { return calls_[member]; }

  // Leaves as many calls to each, paired by place. Where it cannot, the member that does not fit.
  std::optional<size_t> pair() {
    if (numbered()) keep_common_numbers();
    size_t fewest = 0;
    for (size_t member = 0; member < ranks(); ++member)
      if (calls_[member].size() < calls_[fewest].size()) fewest = member;
    offsets_us_.assign(ranks(), 0);
    for (size_t member = 0; member < ranks(); ++member)
      if (member != fewest && !align(fewest, member)) return member;
    return std::nullopt;
  }

 private:
  bool numbered() const {
    for (const Calls& calls : calls_)
      for (const TraceCall* call : calls)
        if (call->sequence < 0) return false;
    return true;
  }

  void keep_common_numbers() {
    std::map<int64_t, size_t> seen;
    for (const Calls& calls : calls_) {
      std::set<int64_t> own;
      for (const TraceCall* call : calls) own.insert(call->sequence);
      for (const int64_t number : own) ++seen[number];
    }
    for (Calls& calls : calls_) {
      std::stable_sort(calls.begin(), calls.end(), [](const TraceCall* a, const TraceCall* b) {
        return a->sequence < b->sequence;
      });
      calls.erase(std::unique(calls.begin(), calls.end(),
                              [](const TraceCall* a, const TraceCall* b) {
                                return a->sequence == b->sequence;
                              }),
                  calls.end());
      std::erase_if(calls, [&](const TraceCall* call) { return seen[call->sequence] < ranks(); });
    }
  }

  bool align(size_t fewest, size_t member) {
    const size_t count = calls_[fewest].size();
    const size_t most = std::min(calls_[member].size() - count, kMostShift);
    Alignment best;
    size_t at = 0;
    for (size_t shift = 0; shift <= most; ++shift) {
      const Alignment found =
          aligned(calls_[fewest], calls_[member], shift, std::min(count, kCompared));
      if (!(found.spread_us < best.spread_us)) continue;
      best = found;
      at = shift;
    }
    if (!std::isfinite(best.spread_us)) return false;
    Calls& calls = calls_[member];
    calls.erase(calls.begin(), calls.begin() + static_cast<ptrdiff_t>(at));
    calls.resize(count);
    offsets_us_[member] = best.offset_us;
    spread_us_ = std::max(spread_us_, best.spread_us);
    return true;
  }

  std::vector<size_t> traces_;  // by member
  std::vector<Calls> calls_;
  std::vector<double> offsets_us_;
  double spread_us_ = 0;
};

std::map<std::string, GroupCalls> groups_of(const std::vector<KinetoTrace>& traces) {
  std::map<std::string, GroupCalls> groups;
  for (size_t trace = 0; trace < traces.size(); ++trace) {
    std::map<std::string, Calls> calls;
    for (const TraceCall& call : traces[trace].calls)
      if (!call.point_to_point) calls[call.group].push_back(&call);
    for (auto& [name, of_group] : calls) groups[name].add(trace, std::move(of_group));
  }
  std::erase_if(groups, [](const auto& group) { return group.second.ranks() < 2; });
  return groups;
}

class TraceArrivals {
 public:
  TraceArrivals(const std::vector<KinetoTrace>& traces, const std::vector<TraceShare>& shares,
                FlightFinding* finding)
      : traces_(traces), shares_(shares), groups_(groups_of(traces)), finding_(finding) {
    for (auto group = groups_.begin(); group != groups_.end();)
      group = pairs(group->first, &group->second) ? std::next(group) : groups_.erase(group);
    waiting_us_.assign(traces.size(), 0);
    for (const auto& [name, group] : groups_) add_waiting(group);
  }

  bool any() const { return !groups_.empty(); }
  double waiting_us(size_t trace) const { return waiting_us_[trace]; }

  void tell() {
    const bool enough =
        any() && find_late_arrivals(dumps(), finding_, {.agree = true, .source = "trace"});
    if (!any() && unpaired_.empty())
      leave_undecided({}, "collectives of groups that appear in at least two traces", finding_);
    for (const std::string& why : unpaired_) leave_undecided({}, why, finding_);
    if (!enough && finding_->decided)
      leave_undecided({}, "more steps: at least six are needed to find a late rank", finding_);
    if (!finding_->decided) return;
    double apart_ms = 0;
    for (const auto& [name, group] : groups_)
      apart_ms = std::max(apart_ms, group.spread_us() * 1e-3);
    if (apart_ms > kDoubtfulEnds * finding_->lateness_ms.value_or(least_lateness_ms()))
      leave_undecided({},
                      fmt::format("clocks that agree: collectives end {:.1f} ms apart on the ranks "
                                  "even when their clocks are aligned",
                                  apart_ms),
                      finding_);
  }

 private:
  bool pairs(const std::string& name, GroupCalls* group) {
    const auto odd = group->pair();
    if (!odd) return true;
    const int64_t rank = traces_[group->traces()[*odd]].rank;
    unpaired_.push_back(
        fmt::format("the same calls on all ranks: rank {} has other collectives in "
                    "group {} than rank {}, or in another order, or none that ends "
                    "on all ranks at once",
                    rank, name, traces_[group->traces().front()].rank));
    return false;
  }

  void add_waiting(const GroupCalls& group) {
    for (size_t call = 0; call < group.calls(0).size(); ++call) {
      double last_us = -std::numeric_limits<double>::infinity();
      for (size_t member = 0; member < group.ranks(); ++member)
        last_us = std::max(last_us, group.came_us(member, call));
      for (size_t member = 0; member < group.ranks(); ++member)
        waiting_us_[group.traces()[member]] += last_us - group.came_us(member, call);
    }
  }

  // That is told from none.
  double least_lateness_ms() const {
    double step_ms = std::numeric_limits<double>::infinity();
    for (const TraceShare& share : shares_)
      step_ms = std::min(step_ms, share.step_ms.value_or(step_ms));
    return kLeastShare * step_ms;
  }

  // As if each rank had recorded when it called what.
  std::vector<FlightDump> dumps() const {
    std::vector<FlightDump> all(traces_.size());
    for (size_t trace = 0; trace < traces_.size(); ++trace) {
      all[trace].rank = traces_[trace].rank;
      all[trace].file = traces_[trace].file;
      for (const auto& [name, description] : traces_[trace].groups)
        all[trace].groups[name] = {description, nullptr};
      add_transfer(traces_[trace].calls, &all[trace].entries);
    }
    for (const auto& [name, group] : groups_) {
      const double begin_us = group.came_us(0, 0);
      const std::vector<size_t> places =
          places_in_steps(group.calls(0), traces_[group.traces().front()].steps);
      for (size_t member = 0; member < group.ranks(); ++member)
        add_entries(name, group, member, begin_us, places, &all[group.traces()[member]].entries);
    }
    return all;
  }

  // One says enough: that the rank may be a stage of a pipeline. With whom, traces do not tell.
  static void add_transfer(const std::vector<TraceCall>& calls, std::vector<FlightEntry>* entries) {
    const auto found = std::find_if(calls.begin(), calls.end(),
                                    [](const TraceCall& call) { return call.point_to_point; });
    if (found == calls.end()) return;
    FlightEntry transfer;
    transfer.group = found->group;
    transfer.point_to_point = true;
    entries->push_back(std::move(transfer));
  }

  // Of each call, which one of its step it is; nothing where a third of the steps have more or
  // fewer. Kernels lag behind the marks of the CPU.
  static std::vector<size_t> places_in_steps(const Calls& calls,
                                             const std::vector<TraceInterval>& steps) {
    std::vector<size_t> places, counts(steps.size() + 1, 0);
    size_t step = 0;
    for (const TraceCall* call : calls) {
      while (step < steps.size() && steps[step].begin_us <= call->time.begin_us) ++step;
      places.push_back(counts[step]++);
    }
    if (steps.size() < 2) return {};
    const std::vector<size_t> inner(counts.begin() + 1, counts.end());
    const auto usual = std::count(inner.begin(), inner.end(), upper_median_of(inner));
    return static_cast<size_t>(usual) * 3 >= inner.size() * 2 ? places : std::vector<size_t>();
  }

  static void add_entries(const std::string& name, const GroupCalls& group, size_t member,
                          double begin_us, const std::vector<size_t>& places,
                          std::vector<FlightEntry>* entries) {
    constexpr int64_t kBegin = int64_t{1} << 60;  // times before the first call's are above 0, too
    for (size_t call = 0; call < group.calls(member).size(); ++call) {
      const TraceCall& from = *group.calls(member)[call];
      FlightEntry entry;
      entry.record = static_cast<int64_t>(call);
      entry.sequence = from.sequence < 0 ? static_cast<int64_t>(call) : from.sequence;
      entry.group = name;
      entry.operation = from.operation;
      entry.sizes = from.sizes;
      if (!places.empty()) entry.sizes += fmt::format(" {}", places[call]);
      entry.dtypes = from.dtypes;
      entry.created_ns = kBegin + std::llround((group.came_us(member, call) - begin_us) * kNsPerUs);
      entry.done = true;
      entries->push_back(std::move(entry));
    }
  }

  const std::vector<KinetoTrace>& traces_;
  const std::vector<TraceShare>& shares_;
  std::map<std::string, GroupCalls> groups_;
  FlightFinding* const finding_;
  std::vector<double> waiting_us_;     // by trace
  std::vector<std::string> unpaired_;  // groups whose calls differ
};

// What is lost cannot be nobody's.
void doubt_waiting(const std::vector<TraceShare>& shares, FlightFinding* finding) {
  double waiting_ms = 0, step_ms = 0;
  for (const TraceShare& share : shares) {
    waiting_ms += share.waiting_ms.value_or(0) / static_cast<double>(shares.size());
    step_ms = std::max(step_ms, share.step_ms.value_or(0));
  }
  if (step_ms > 0 && waiting_ms > kMuchWaiting * step_ms)
    leave_undecided(
        {},
        fmt::format(
            "a rank that is late in four of five steps: of a step of {:.1f} ms ranks wait {:.1f} "
            "ms in collectives, but for a different rank from step to step, or only in some steps",
            step_ms, waiting_ms),
        finding);
}

}  // namespace

void find_late_in_traces(const std::vector<KinetoTrace>& traces, std::vector<TraceShare>* shares,
                         FlightFinding* finding) {
  for (const KinetoTrace& trace : traces)
    finding->ranks = std::max({finding->ranks, trace.world_size, trace.rank + 1});
  const auto traced = static_cast<int64_t>(traces.size());
  if (traced < 2) {
    leave_undecided({},
                    "the traces of the other ranks: a single trace shows overlap, not which rank "
                    "waits for which",
                    finding);
    return;
  }
  TraceArrivals arrivals(traces, *shares, finding);
  for (size_t trace = 0; trace < traces.size() && arrivals.any(); ++trace) {
    const auto steps = static_cast<double>(std::max<int64_t>(1, (*shares)[trace].steps));
    (*shares)[trace].waiting_ms = arrivals.waiting_us(trace) * 1e-3 / steps;
  }
  arrivals.tell();
  if (finding->decided && finding->guilty.empty()) doubt_waiting(*shares, finding);
}

}  // namespace lockstep
