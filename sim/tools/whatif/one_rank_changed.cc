#include "sim/tools/whatif/one_rank_changed.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "scenarios/base/error.h"

namespace lockstep {
namespace {

constexpr double kNoWay = -std::numeric_limits<double>::infinity();

}  // namespace

OneRankChanged::OneRankChanged(const StepModel& model)
    : model_(model), to_begin_(model.transfers.size()) {
  LOCKSTEP_CHECK(model.ranks() > 1, "there are no others");
  for (const StepModel::Slot& slot : model.slots)
    work_sums_.push_back(std::accumulate(slot.work_ns.begin(), slot.work_ns.end(), 0.0));
  for (const StepModel::Transfer& transfer : model.transfers)
    delay_medians_.emplace_back(transfer.delay_ns);
  for (size_t rank = 0; rank < model.ranks(); ++rank) follow(rank);
}

// As StepModel::step_ns(), with the longest way from each source in place of a time.
void OneRankChanged::follow(size_t rank) {
  const size_t sources = model_.transfers.size() + 1;
  const auto join = [&](const Form& other, Form* form) {
    for (size_t i = 0; i < sources; ++i) (*form)[i] = std::max((*form)[i], other[i]);
    operations_ += static_cast<int64_t>(sources);
  };
  Form now(sources, kNoWay);
  now[0] = 0;
  Form queue = now;
  std::vector<Form> ends(model_.transfers.size());
  for (const StepModel::Slot& slot : model_.slots) {
    if (slot.arrives) {
      const StepModel::Transfer& transfer = model_.transfers[*slot.arrives];
      join(now, &queue);
      for (double& way : queue) way += transfer.delay_ns[rank];
      take(queue, rank, &to_begin_[*slot.arrives]);
      double& own = queue[*slot.arrives + 1];
      own = std::max(own, transfer.service_ns[rank]);
      ends[*slot.arrives] = queue;
    }
    for (const size_t joined : slot.joins) join(ends[joined], &now);
    for (double& way : now) way += slot.work_ns[rank];
  }
  take(now, rank, &to_end_);
}

// All ranks go the same ways: the first one lists them.
void OneRankChanged::take(const Form& form, size_t rank, Ways* ways) {
  if (rank == 0)
    for (size_t i = 0; i < form.size(); ++i)
      if (form[i] != kNoWay) ways->push_back({i, 0, kNoWay, kNoWay});
  for (Way& way : *ways) {
    const double ns = form[way.from];
    if (ns > way.longest_ns) {
      way.second_ns = way.longest_ns;
      way.longest_ns = ns;
      way.rank = rank;
    } else {
      way.second_ns = std::max(way.second_ns, ns);
    }
  }
  operations_ += static_cast<int64_t>(ways->size());
}

double OneRankChanged::latest(const Ways& ways, size_t without,
                              const std::vector<double>& begins) const {
  double time_ns = kNoWay;
  for (const Way& way : ways)
    time_ns = std::max(time_ns, (way.rank == without ? way.second_ns : way.longest_ns) +
                                    (way.from == 0 ? 0 : begins[way.from - 1]));
  operations_ += static_cast<int64_t>(ways.size());
  return time_ns;
}

OneRankChanged::Durations OneRankChanged::own(size_t rank) const {
  Durations durations;
  for (const StepModel::Slot& slot : model_.slots) durations.work_ns.push_back(slot.work_ns[rank]);
  for (const StepModel::Transfer& transfer : model_.transfers)
    durations.delay_ns.push_back(transfer.delay_ns[rank]);
  return durations;
}

OneRankChanged::Durations OneRankChanged::of_others(size_t rank) const {
  Durations durations;
  const auto others = static_cast<double>(model_.ranks() - 1);
  for (size_t i = 0; i < model_.slots.size(); ++i)
    durations.work_ns.push_back((work_sums_[i] - model_.slots[i].work_ns[rank]) / others);
  for (size_t i = 0; i < model_.transfers.size(); ++i)
    durations.delay_ns.push_back(delay_medians_[i].without(model_.transfers[i].delay_ns[rank]));
  return durations;
}

double OneRankChanged::step_ns(size_t rank, const Durations& durations) const {
  double now = 0, queue = 0;
  std::vector<double> begins(model_.transfers.size(), 0), ends(model_.transfers.size(), 0);
  for (size_t i = 0; i < model_.slots.size(); ++i) {
    const StepModel::Slot& slot = model_.slots[i];
    if (slot.arrives) {
      const size_t at = *slot.arrives;
      const double start = std::max(now, queue) + durations.delay_ns[at];
      begins[at] = std::max(start, latest(to_begin_[at], rank, begins));
      queue = std::max(start, begins[at] + model_.transfers[at].service_ns[rank]);
      ends[at] = queue;
    }
    for (const size_t joined : slot.joins) now = std::max(now, ends[joined]);
    now += durations.work_ns[i];
    operations_ += 1 + static_cast<int64_t>(slot.joins.size());
  }
  return std::max(now, latest(to_end_, rank, begins));
}

}  // namespace lockstep
