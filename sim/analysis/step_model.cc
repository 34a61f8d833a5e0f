#include "sim/analysis/step_model.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "scenarios/base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kNone = -1;

// Where a slot begins: a phase, or an arrival at a collective of the step.
struct Mark {
  Phase phase{};
  int64_t collective = kNone;  // place in Step::collectives
  int64_t time_ns = 0;
  int64_t core_wait_ns = 0;
  bool same_as(const Mark& other) const {
    return phase == other.phase && collective == other.collective;
  }
};

std::vector<Mark> marks_of(const Timeline& timeline, const Step& step, size_t rank) {
  std::vector<Mark> marks;
  for (const PhaseInterval& phase : step.ranks[rank].phases)
    marks.push_back({phase.phase, kNone, phase.time.begin_ns, phase.core_wait_ns});
  for (size_t i = 0; i < step.collectives.size(); ++i) {
    const Passage& passage = timeline.collectives[step.collectives[i]].ranks[rank];
    marks.push_back({passage.phase, static_cast<int64_t>(i), *passage.arrival_ns});
  }
  std::stable_sort(marks.begin(), marks.end(),
                   [](const Mark& a, const Mark& b) { return a.time_ns < b.time_ns; });
  return marks;
}

class ReplayBuilder {
 public:
  ReplayBuilder(const Timeline& timeline, const Step& step) : timeline_(timeline), step_(step) {
    for (size_t rank = 0; rank < step.ranks.size(); ++rank)
      marks_.push_back(marks_of(timeline, step, rank));
  }

  std::optional<StepModel> build() {
    for (const auto& marks : marks_)
      if (!std::equal(marks.begin(), marks.end(), marks_[0].begin(), marks_[0].end(),
                      [](const Mark& a, const Mark& b) { return a.same_as(b); }))
        return std::nullopt;
    model_.step = step_.step;
    for (size_t i = 0; i < marks_[0].size(); ++i) add_slot(i);
    for (size_t i = 0; i < step_.collectives.size(); ++i) add_transfer(i);
    for (const RankStep& rank : step_.ranks)
      model_.others_core_wait_ns.push_back(static_cast<double>(rank.others_core_wait_ns));
    return std::move(model_);
  }

 private:
  const Passage& passage(size_t collective, size_t rank) const {
    return timeline_.collectives[step_.collectives[collective]].ranks[rank];
  }
  int64_t end_of_slot(size_t slot, size_t rank) const {
    const auto& marks = marks_[rank];
    return slot + 1 < marks.size() ? marks[slot + 1].time_ns : step_.ranks[rank].time.end_ns;
  }

  void add_slot(size_t index) {
    const Mark& mark = marks_[0][index];
    StepModel::Slot slot;
    slot.phase = mark.phase;
    if (mark.collective != kNone) {
      slot.arrives = static_cast<size_t>(mark.collective);
      pending_.push_back(*slot.arrives);
    }
    slot.joins = joins_of(index);
    for (size_t rank = 0; rank < marks_.size(); ++rank) {
      int64_t begin = marks_[rank][index].time_ns;
      for (const size_t joined : slot.joins) begin = std::max(begin, *passage(joined, rank).end_ns);
      slot.work_ns.push_back(static_cast<double>(end_of_slot(index, rank) - begin));
      slot.core_wait_ns.push_back(static_cast<double>(marks_[rank][index].core_wait_ns));
    }
    model_.slots.push_back(std::move(slot));
  }

  // Buckets are on their way while backward goes on; everything else is waited for as soon as
  // that is what all ranks' times look like.
  std::vector<size_t> joins_of(size_t slot) {
    const Mark& mark = marks_[0][slot];
    std::vector<size_t> joins;
    for (const size_t collective : pending_) {
      const bool own = static_cast<int64_t>(collective) == mark.collective;
      const bool bucket = timeline_.collectives[step_.collectives[collective]].bucket >= 0;
      if (mark.phase == Phase::backward && (bucket || !own)) continue;
      bool ended = true;
      for (size_t rank = 0; rank < marks_.size(); ++rank)
        ended = ended && *passage(collective, rank).end_ns <= end_of_slot(slot, rank);
      if (ended) joins.push_back(collective);
    }
    std::erase_if(pending_, [&](size_t collective) {
      return std::find(joins.begin(), joins.end(), collective) != joins.end();
    });
    return joins;
  }

  void add_transfer(size_t index) {
    StepModel::Transfer transfer;
    int64_t begin = INT64_MIN;
    for (size_t rank = 0; rank < marks_.size(); ++rank) {
      const Passage& p = passage(index, rank);
      int64_t next = *p.arrival_ns;
      if (index > 0) next = std::max(next, *passage(index - 1, rank).end_ns);
      const int64_t start = std::max(next, p.launched_ns.value_or(next));
      transfer.delay_ns.push_back(static_cast<double>(start - next));
      begin = std::max(begin, start);
    }
    for (size_t rank = 0; rank < marks_.size(); ++rank)
      transfer.service_ns.push_back(static_cast<double>(*passage(index, rank).end_ns - begin));
    model_.transfers.push_back(std::move(transfer));
  }

  const Timeline& timeline_;
  const Step& step_;
  std::vector<std::vector<Mark>> marks_;  // by rank
  std::vector<size_t> pending_;           // arrived at, not yet waited for
  StepModel model_;
};

std::vector<double> other_ranks_of(const std::vector<double>& values,
                                   const std::vector<size_t>& ranks) {
  std::vector<double> others;
  for (size_t rank = 0; rank < values.size(); ++rank)
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) others.push_back(values[rank]);
  return others;
}

double sum_of_slots(const StepModel& model, std::vector<double> StepModel::Slot::*part, size_t rank,
                    std::optional<Phase> phase) {
  double sum = 0;
  for (const StepModel::Slot& slot : model.slots)
    if (!phase || slot.phase == *phase) sum += (slot.*part)[rank];
  return sum;
}

}  // namespace

MediansOfOthers::MediansOfOthers(std::vector<double> values) : sorted_(std::move(values)) {
  LOCKSTEP_CHECK(sorted_.size() > 1, "there are no others");
  std::sort(sorted_.begin(), sorted_.end());
}

double MediansOfOthers::without(double value) const {
  const auto place = static_cast<size_t>(std::lower_bound(sorted_.begin(), sorted_.end(), value) -
                                         sorted_.begin());
  const auto other = [&](size_t i) { return sorted_[i < place ? i : i + 1]; };
  const size_t count = sorted_.size() - 1, half = count / 2;
  return count % 2 == 1 ? other(half) : (other(half - 1) + other(half)) / 2;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::optional<StepModel> model_of(const Timeline& timeline, const Step& step) {
  return ReplayBuilder(timeline, step).build();
}

double StepModel::work_ns(size_t rank, std::optional<Phase> phase) const {
  return sum_of_slots(*this, &Slot::work_ns, rank, phase);
}

double StepModel::core_wait_ns(size_t rank, std::optional<Phase> phase) const {
  return sum_of_slots(*this, &Slot::core_wait_ns, rank, phase);
}

double StepModel::delay_ns(size_t rank) const {
  double sum = 0;
  for (const Transfer& transfer : transfers) sum += transfer.delay_ns[rank];
  return sum;
}

double StepModel::step_ns() const {
  const size_t count = ranks();
  std::vector<double> now(count, 0), queue(count, 0);
  std::vector<std::vector<double>> ends(transfers.size());
  for (const Slot& slot : slots) {
    if (slot.arrives) {
      const Transfer& transfer = transfers[*slot.arrives];
      std::vector<double> start(count);
      for (size_t rank = 0; rank < count; ++rank)
        start[rank] = std::max(now[rank], queue[rank]) + transfer.delay_ns[rank];
      const double begin = *std::max_element(start.begin(), start.end());
      for (size_t rank = 0; rank < count; ++rank)
        queue[rank] = std::max(start[rank], begin + transfer.service_ns[rank]);
      ends[*slot.arrives] = queue;
    }
    for (size_t rank = 0; rank < count; ++rank) {
      for (const size_t joined : slot.joins) now[rank] = std::max(now[rank], ends[joined][rank]);
      now[rank] += slot.work_ns[rank];
    }
  }
  return count == 0 ? 0 : *std::max_element(now.begin(), now.end());
}

StepModel StepModel::ideal() const {
  StepModel model = *this;
  for (Slot& slot : model.slots) slot.work_ns.assign(ranks(), mean_of(slot.work_ns));
  for (Transfer& transfer : model.transfers) {
    transfer.delay_ns.assign(ranks(), median_of(transfer.delay_ns));
    transfer.service_ns.assign(ranks(), median_of(transfer.service_ns));
  }
  return model;
}

std::vector<double> StepModel::only_ns() const {
  if (ranks() < 2) return std::vector<double>(ranks(), step_ns());
  const StepModel all_alike = ideal();
  StepModel two = all_alike;  // the rank that is asked for, and one of the others
  for (Slot& slot : two.slots) slot.work_ns.resize(2);
  for (Transfer& transfer : two.transfers) {
    transfer.delay_ns.resize(2);
    transfer.service_ns.resize(2);
  }
  std::vector<double> only;
  for (size_t rank = 0; rank < ranks(); ++rank) {
    for (size_t i = 0; i < slots.size(); ++i) two.slots[i].work_ns[0] = slots[i].work_ns[rank];
    for (size_t i = 0; i < transfers.size(); ++i) {
      two.transfers[i].delay_ns[0] = transfers[i].delay_ns[rank];
      two.transfers[i].service_ns[0] = transfers[i].service_ns[rank];
    }
    only.push_back(two.step_ns());
  }
  return only;
}

StepModel StepModel::without(const std::vector<size_t>& ranks) const {
  StepModel model = *this;
  const auto replace = [&](std::vector<double>* values, auto usual_of) {
    const std::vector<double> others = other_ranks_of(*values, ranks);
    if (others.empty()) return;
    for (const size_t rank : ranks) (*values)[rank] = usual_of(others);
  };
  for (Slot& slot : model.slots) replace(&slot.work_ns, mean_of);
  for (Transfer& transfer : model.transfers) replace(&transfer.delay_ns, median_of);
  return model;
}

}  // namespace lockstep
