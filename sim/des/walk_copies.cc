// Collectives of units where groups of ranks hold a copy of the parameters each: a group's own are
// among its neighbours, and each part of the sums goes between the groups, beside or behind them.
#include <algorithm>

#include "sim/des/walk.h"

namespace lockstep {

// Ranks that nothing tells apart are one member, and all groups are as one.
std::vector<Walk::Group> Walk::groups_in(Operation operation) const {
  if (static_cast<int64_t>(members_.size()) != job_.ranks) return {all()};
  std::vector<Group> groups;
  const auto held_by = static_cast<size_t>(job_.parts->shard_ranks);
  if (operation == Operation::all_reduce) {
    for (size_t part = 0; part < held_by; ++part)
      groups.push_back({part, members_.size(), held_by});
    return groups;
  }
  for (size_t begin = 0; begin < members_.size(); begin += held_by)
    groups.push_back({begin, begin + held_by, 1});
  return groups;
}

// False: somebody is missed, or the time-out has passed. Of all groups the one that ends last
// counts as communication.
bool Walk::meet_group(Operation operation, const BucketWork& work, Group group,
                      const std::vector<int64_t>& starts, std::vector<int64_t>* ends, Spans* last) {
  if (wait_in_vain(work, group)) return false;
  const int64_t last_ns = starts[latest(starts, group)];
  const int64_t end_ns = last_ns + unit_ns(job_, operation, work.bytes);
  int64_t first_ns = kNever;
  for (size_t m = group.begin; m < group.end; m += group.step) {
    (*ends)[m] = end_ns;
    first_ns = std::min(first_ns, early_[m]);
  }
  const int64_t arrived_ns = arrival_[latest(arrival_, group)];
  skew_ns_ = std::max(skew_ns_, arrived_ns - first_ns);
  longest_ns_ = std::max(longest_ns_, end_ns - first_ns);
  if (time_out(work, *ends, group)) return false;
  if (end_ns >= last->on_wire.end_ns) *last = {{last_ns, end_ns}, {arrived_ns, end_ns}};
  return true;
}

// In the order of their begins, although those with links of their own may begin later than others
// that come after them.
void Walk::note(const Spans& last) {
  const auto add = [](const Span& span, std::vector<Span>* spans) {
    const auto at = std::upper_bound(
        spans->begin(), spans->end(), span,
        [](const Span& one, const Span& other) { return one.begin_ns < other.begin_ns; });
    spans->insert(at, span);
  };
  add(last.on_wire, &spans_);
  add(last.from_last, &comm_);
}

void Walk::meet_in_groups(Operation operation, const BucketWork& work) {
  const bool between = operation == Operation::all_reduce;
  auto& ahead = between && copies_have_links(job_) ? summed_ : done_;
  std::vector<int64_t> starts = launched_, ends(members_.size(), kNever);
  for (size_t m = 0; m < starts.size() && !ahead.empty(); ++m)
    starts[m] = std::max(starts[m], ahead.back()[m]);
  Spans last;
  for (const Group& group : groups_in(operation))
    if (!meet_group(operation, work, group, starts, &ends, &last)) break;
  if (failure_)
    ends.assign(members_.size(), kNever);
  else
    note(last);
  trace_collective(operation, ends);
  ahead.push_back(std::move(ends));
}

// A rank's part of a bucket, when it has it.
void Walk::sum_between_copies(const BucketWork& work) {
  if (failure_) return;
  const std::vector<int64_t> arrival = arrival_, early = early_;
  arrival_ = early_ = done_.back();
  launch(Operation::all_reduce, part_bytes(job_, work.bytes));
  meet_in_groups(Operation::all_reduce, work);
  if (failure_) return;
  arrival_ = arrival;
  early_ = early;
}

}  // namespace lockstep
