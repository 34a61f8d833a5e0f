#include "sim/des/fronts.h"

#include <algorithm>
#include <set>

#include "sim/des/random.h"

namespace lockstep {
namespace {

constexpr size_t kWorthIt = 64;  // ranks that faults touch

class Rows {
 public:
  Rows(const std::vector<int64_t>& by_fault, size_t ranks)
      : by_fault_(by_fault), ranks_(ranks), faults_(ranks == 0 ? 0 : by_fault.size() / ranks) {}

  // In nothing below b.
  bool covers(size_t a, size_t b) const {
    for (size_t f = 0; f < faults_; ++f)
      if (by_fault_[f * ranks_ + a] < by_fault_[f * ranks_ + b]) return false;
    return true;
  }

  // Those that none of the others covers; or, not upper, that cover none of the others.
  std::vector<size_t> front(bool upper) const {
    std::vector<size_t> front;
    const auto beats = [&](size_t a, size_t b) { return upper ? covers(a, b) : covers(b, a); };
    for (size_t rank = 0; rank < ranks_; ++rank) {
      // Whoever beat the one before may well beat this one.
      const auto beaten = std::find_if(front.begin(), front.end(),
                                       [&](size_t other) { return beats(other, rank); });
      if (beaten != front.end()) {
        std::iter_swap(front.begin(), beaten);
        continue;
      }
      front.erase(std::remove_if(front.begin(), front.end(),
                                 [&](size_t other) { return beats(rank, other); }),
                  front.end());
      front.push_back(rank);
    }
    return front;
  }

 private:
  const std::vector<int64_t>& by_fault_;
  const size_t ranks_, faults_;
};

// The step's last bucket is ready when backward ends, so that nobody leaves before the last.
bool ends_in_buckets(const Job& job) {
  for (const auto* buckets : {&job.first_step, &job.settled})
    if (buckets->empty() || buckets->back().ready_ns != job.backward_ns) return false;
  return (job.passes == 1 || job.each_pass) && !job.local_from && job.averaging.empty();
}

}  // namespace

bool has_fronts(const Job& job) {
  const bool one_draw = !job.noise.any() || (!job.noise.per_bucket && job.passes == 1);
  return job.schedule.weigh && job.schedule.touched.size() > kWorthIt && one_draw &&
         job.links.empty() && ends_in_buckets(job);
}

std::vector<size_t> extremes(const std::vector<int64_t>& by_fault, size_t ranks) {
  const Rows rows(by_fault, ranks);
  std::set<size_t> places;
  for (const bool upper : {true, false})
    for (const size_t place : rows.front(upper)) places.insert(place);
  return {places.begin(), places.end()};
}

std::vector<Member> front_of(const Job& job, const std::vector<Member>& classes, int64_t step) {
  std::vector<Member> members;
  std::vector<int64_t> weights = job.schedule.weigh(step);
  if (job.noise.any()) {
    const RankStream draws(job.seed, step, -1);  // of the step's one pass
    for (const int64_t rank : job.schedule.touched) weights.push_back(draws.at(rank));
  }
  // Classes begin with the touched ranks, one by one.
  for (const size_t place : extremes(weights, job.schedule.touched.size()))
    members.push_back(classes[place]);
  if (!classes.back().touched) members.push_back(classes.back());
  return members;
}

}  // namespace lockstep
