#include "sim/fault/acts/schedule.h"

#include <utility>

namespace lockstep {

FaultSchedule::FaultSchedule(std::shared_ptr<const std::vector<FaultMoments>> moments, int64_t rank)
    : moments_(std::move(moments)), rank_(rank) {
  of_rank_.reserve(moments_->size());
  for (const FaultMoments& fault : *moments_) of_rank_.push_back(fault.of_rank(rank));
}

template <class Matches>
std::vector<Act> FaultSchedule::matching(int64_t step, Matches matches) const {
  std::vector<Act> acts;
  for (size_t i = 0; i < moments_->size(); ++i) {
    const FaultMoments& fault = (*moments_)[i];
    if (matches(fault) && fault.acts(of_rank_[i], rank_, step))
      acts.push_back({i, &fault.fault(), fault.duration_ms(of_rank_[i], step)});
  }
  return acts;
}

std::vector<Act> FaultSchedule::at_phase(Phase phase, int64_t step) const {
  return matching(step, [&](const FaultMoments& fault) { return fault.phase() == phase; });
}

std::vector<Act> FaultSchedule::at_bucket(int64_t bucket, int64_t step) const {
  return matching(step, [&](const FaultMoments& fault) { return fault.bucket() == bucket; });
}

std::vector<Act> FaultSchedule::at_layer(const std::string& layer, int64_t step) const {
  return matching(step, [&](const FaultMoments& fault) {
    return !fault.layer().empty() && fault.layer() == layer;
  });
}

std::vector<Act> FaultSchedule::of_kind(FaultKind kind, int64_t step) const {
  return matching(step, [&](const FaultMoments& fault) { return fault.fault().kind == kind; });
}

double FaultSchedule::slowdown(int64_t step) const {
  double factor = 1;
  for (size_t i = 0; i < moments_->size(); ++i) {
    const FaultMoments& fault = (*moments_)[i];
    if (fault.factor() && fault.acts(of_rank_[i], rank_, step)) factor *= *fault.factor();
  }
  return factor;
}

}  // namespace lockstep
