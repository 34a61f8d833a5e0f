#include "sim/analysis/straggler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "scenarios/json/json_text.h"

namespace lockstep {

std::string text_of(const Straggler& s) {
  if (s.late_class == "none")
    return fmt::format("no straggler: in {} steps no rank is late beyond chance", s.steps);
  const std::string who = s.rank
                              ? fmt::format("rank {} is late: ", *s.rank)
                              : fmt::format("ranks {} are late in turn: ", fmt::join(s.ranks, " "));
  std::string how = s.late_class;
  if (s.period > 0) how += fmt::format(" (every {} steps)", s.period);
  if (!s.phase.empty()) how += " in " + s.phase;
  return fmt::format(
      "{}{}, {:.1f} ms per step ({:.2f}x) in {} of {} steps; without it a step would take {:.1f} "
      "ms instead of {:.1f}",
      who, how, s.cost_ms, s.times, s.late_steps, s.steps, s.without_ms, s.step_ms);
}

namespace {

constexpr double kLeastNs = kLeastMs * 1e6;

double others_median(const std::vector<double>& values, size_t rank) {
  return MediansOfOthers(values).without(values[rank]);
}

// The late rank of a step, if it has one.
struct Late {
  size_t rank = 0;
  double excess_ns = 0;
  double base_ns = 0;    // the others' work
  double second_ns = 0;  // excess of the next
};

std::optional<Late> latest_beyond(const std::vector<double>& values,
                                  const std::vector<double>& works) {
  std::optional<Late> latest;
  size_t late = 0;
  std::vector<double> excesses;
  const MediansOfOthers usual(values), usual_work(works);
  for (size_t rank = 0; rank < values.size(); ++rank) {
    const double base = usual_work.without(works[rank]);
    const double excess = values[rank] - usual.without(values[rank]);
    excesses.push_back(excess);
    if (excess <= std::max(kLate * base, kLeastNs)) continue;
    ++late;
    if (!latest || excess > latest->excess_ns) latest = Late{rank, excess, base};
  }
  std::sort(excesses.begin(), excesses.end());
  if (latest) latest->second_ns = excesses[excesses.size() - 2];
  return late * 2 > values.size() ? std::nullopt : latest;
}

// Scatter of what is not late, as a standard deviation: from the lower two fifths, since the works
// of stragglers are among the upper ones.
double scatter_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto quantile = [&](double q) {
    return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
  };
  constexpr double kNormalTenthToFourTenths = 1.028;
  return (quantile(0.4) - quantile(0.1)) / kNormalTenthToFourTenths;
}

using LateSteps = std::vector<std::optional<Late>>;  // by place in the steps

struct Dominant {
  size_t rank = 0;
  int64_t hits = 0, all = 0;  // its late steps; those of all ranks
};

class Finder {
 public:
  explicit Finder(const std::vector<StepModel>& steps) : steps_(steps), ranks_(steps[0].ranks()) {
    std::vector<double> all;
    for (const StepModel& step : steps) {
      std::vector<double> works, delays;
      for (size_t rank = 0; rank < ranks_; ++rank) {
        works.push_back(step.work_ns(rank));
        delays.push_back(step.delay_ns(rank));
      }
      all.insert(all.end(), works.begin(), works.end());
      by_work_.push_back(latest_beyond(works, works));
      by_delay_.push_back(latest_beyond(delays, works));
      works_.push_back(std::move(works));
    }
    const double noise = std::max(kNoise * scatter_of(all), kOutMs * 1e6);
    for (const auto& late : by_work_) {
      const bool out = late && late->excess_ns > noise;
      outstanding_.push_back(out ? late : std::nullopt);
      const bool still =
          out && late->excess_ns > std::max(kStopped * late->base_ns, kStoppedMs * 1e6);
      still_.push_back(still ? late : std::nullopt);
    }
  }

  Straggler find() {
    Straggler found;
    found.steps = static_cast<int64_t>(steps_.size());
    const bool any = periodic(&found) || constant(&found) || in_turn(&found) || stopped(&found);
    if (!any) several_stopped(&found);
    if (found.cost_ms < kLeastCost * found.step_ms) {
      found = Straggler{};
      found.steps = static_cast<int64_t>(steps_.size());
    }
    found.text = text_of(found);
    return found;
  }

 private:
  static std::optional<Dominant> dominant_of(const LateSteps& late) {
    std::map<size_t, int64_t> hits;
    Dominant dominant;
    for (const auto& step : late) {
      if (!step) continue;
      ++dominant.all;
      if (++hits[step->rank] <= dominant.hits) continue;
      dominant.rank = step->rank;
      dominant.hits = hits[step->rank];
    }
    if (static_cast<double>(dominant.hits) < kDominant * static_cast<double>(dominant.all) ||
        dominant.all == 0)
      return std::nullopt;
    return dominant;
  }

  bool in_most(int64_t count) const { return count * 2 > static_cast<int64_t>(steps_.size()); }

  double chance(int64_t hits, int64_t steps) const {
    return chance_of(hits, steps, static_cast<int64_t>(ranks_));
  }

  // Those at least half as late as the third latest: pauses are of a kind, and much else that makes
  // ranks late is short beside them.
  static LateSteps large_of(const LateSteps& late) {
    std::vector<double> excess;
    for (const auto& step : late)
      if (step) excess.push_back(step->excess_ns);
    if (excess.size() < 3) return late;
    std::sort(excess.rbegin(), excess.rend());
    LateSteps large = late;
    for (auto& step : large)
      if (step && step->excess_ns * 2 < excess[2]) step.reset();
    return large;
  }

  bool periodic(Straggler* found) {
    const LateSteps large = large_of(outstanding_);
    const auto dominant = dominant_of(large);
    if (!dominant || dominant->hits < 3) return false;
    for (int64_t period = 2; period <= found->steps / 2; ++period)
      for (int64_t offset = 0; offset < period; ++offset) {
        int64_t hits = 0, wrong = 0;
        for (size_t i = 0; i < steps_.size(); ++i) {
          const bool due = steps_[i].step % period == offset;
          const bool hit = large[i] && large[i]->rank == dominant->rank;
          hits += due && hit;
          wrong += due != hit;
        }
        const double accident =
            chance(hits, dominant->all) *
            std::pow(static_cast<double>(period), static_cast<double>(1 - hits));
        if (hits < 3 || wrong * 5 > hits || accident > kChance) continue;
        found->period = period;
        accuse("periodic", dominant->rank, large, true, found);
        return true;
      }
    return false;
  }

  bool constant(Straggler* found) {
    for (const auto& [word, late] :
         {std::pair("compute", &by_work_), std::pair("link", &by_delay_)}) {
      const auto dominant = dominant_of(*late);
      if (!dominant || !in_most(dominant->hits) || chance(dominant->hits, found->steps) > kChance)
        continue;
      accuse(word, dominant->rank, *late, false, found);
      return true;
    }
    return false;
  }

  bool stopped(Straggler* found) {
    std::set<size_t> still;
    for (const auto& late : still_)
      if (late) still.insert(late->rank);
    if (still.size() > 1) return false;
    const auto dominant = dominant_of(outstanding_);
    const bool often =
        dominant && dominant->hits >= 3 && chance(dominant->hits, dominant->all) <= kChance;
    if (still.empty() && !often) return false;
    const size_t rank = still.empty() ? dominant->rank : *still.begin();
    accuse("stopped", rank, often ? outstanding_ : still_, true, found);
    return true;
  }

  // One rank at a time, and each for much the same time.
  static bool no_accident(const LateSteps& late) {
    std::vector<double> excess;
    size_t alone = 0;
    for (const auto& step : late) {
      if (!step) continue;
      excess.push_back(step->excess_ns);
      alone += step->second_ns * 2 < step->excess_ns;
    }
    std::sort(excess.begin(), excess.end());
    const size_t last = excess.size() - 1;
    return static_cast<double>(alone) >= kDominant * static_cast<double>(excess.size()) &&
           excess[last / 4] >= kAlike * excess[last - last / 4];
  }

  bool in_turn(Straggler* found) const {
    const auto count =
        std::count_if(outstanding_.begin(), outstanding_.end(), [](auto& late) { return late; });
    if (count < 4 || !in_most(count) || dominant_of(outstanding_) || !no_accident(outstanding_))
      return false;
    accuse_all_of(outstanding_, found);
    return true;
  }

  void several_stopped(Straggler* found) const {
    std::set<size_t> ranks;
    for (const auto& late : still_)
      if (late) ranks.insert(late->rank);
    if (ranks.size() > 1) accuse_all_of(still_, found);
  }

  void accuse_all_of(const LateSteps& late, Straggler* found) const {
    std::set<int64_t> ranks;
    for (const auto& step : late)
      if (step) ranks.insert(static_cast<int64_t>(step->rank));
    found->ranks.assign(ranks.begin(), ranks.end());
    accuse("wandering", std::nullopt, late, true, found);
  }

  // rank absent: the late rank of each step. single: only its late steps are without it.
  void accuse(const std::string& word, std::optional<size_t> rank, const LateSteps& late,
              bool single, Straggler* found) const {
    found->late_class = word;
    if (rank) found->rank = static_cast<int64_t>(*rank);
    double real = 0, without = 0, times = 0;
    std::vector<double> excess(static_cast<size_t>(Phase::teardown) + 1);
    for (size_t i = 0; i < steps_.size(); ++i) {
      const double step_ns = steps_[i].step_ns();
      const bool hit = late[i] && (!rank || late[i]->rank == *rank);
      real += step_ns;
      without += hit || !single
                     ? steps_[i].without(rank.value_or(hit ? late[i]->rank : 0)).step_ns()
                     : step_ns;
      if (!hit) continue;
      if (++found->late_steps == 1) found->first_late_step = steps_[i].step;
      times += 1 + late[i]->excess_ns / std::max(late[i]->base_ns, 1.0);
      for (size_t phase = 0; phase < excess.size(); ++phase)
        excess[phase] += excess_in(i, static_cast<Phase>(phase), late[i]->rank);
    }
    const double count = static_cast<double>(steps_.size()) * 1e6;
    found->step_ms = real / count;
    found->without_ms = without / count;
    found->cost_ms = found->step_ms - found->without_ms;
    found->times = times / static_cast<double>(std::max<int64_t>(1, found->late_steps));
    if (word != "link") found->phase = main_phase(excess);
    if (rank) found->score = score_of(*rank);
  }

  double excess_in(size_t step, Phase phase, size_t rank) const {
    std::vector<double> works;
    for (size_t r = 0; r < ranks_; ++r) works.push_back(steps_[step].work_ns(r, phase));
    return works[rank] - others_median(works, rank);
  }

  static std::string main_phase(const std::vector<double>& excess) {
    double sum = 0;
    for (const double part : excess) sum += std::max(part, 0.0);
    const auto most = std::max_element(excess.begin(), excess.end());
    return *most * 2 > sum ? to_word(static_cast<Phase>(most - excess.begin())) : "";
  }

  double score_of(size_t rank) const {
    std::vector<double> medians;
    for (size_t r = 0; r < ranks_; ++r) {
      std::vector<double> works;
      for (const auto& step : works_) works.push_back(step[r]);
      medians.push_back(median_of(std::move(works)));
    }
    return *std::min_element(medians.begin(), medians.end()) / std::max(medians[rank], 1.0);
  }

  const std::vector<StepModel>& steps_;
  const size_t ranks_;
  std::vector<std::vector<double>> works_;  // by step and rank
  LateSteps by_work_, by_delay_, outstanding_, still_;
};

double mean_step_ms(const std::vector<StepModel>& steps) {
  double sum = 0;
  for (const StepModel& step : steps) sum += step.step_ns();
  return sum / static_cast<double>(steps.size()) / 1e6;
}

// The longest wait of any rank, and of how many steps it decides.
void note_core_waits(const CoreWaits& waits, Straggler* s) {
  s->core_wait_ms = *std::max_element(waits.mean_ms.begin(), waits.mean_ms.end());
  s->busy_steps = waits.busy_steps;
}

// Nobody is accused: what the machine cost, and whom it kept waiting.
Straggler starved(const std::vector<StepModel>& recorded, const std::vector<StepModel>& relieved,
                  const CoreWaits& waits) {
  Straggler s;
  s.late_class = kStarved;
  s.steps = static_cast<int64_t>(recorded.size());
  s.late_steps = waits.busy_steps;
  s.step_ms = mean_step_ms(recorded);
  s.without_ms = mean_step_ms(relieved);
  s.cost_ms = s.step_ms - s.without_ms;
  note_core_waits(waits, &s);
  s.text = fmt::format(
      "busy machine: nobody is accused, because ranks were ready and waited for a core, up to "
      "{:.1f} ms per step, long enough to look late or to hide a late rank in {} of {} steps; with "
      "a core "
      "at all times a step would take {:.1f} ms instead of {:.1f}",
      s.core_wait_ms, s.busy_steps, s.steps, s.without_ms, s.step_ms);
  return s;
}

}  // namespace

double chance_of(int64_t hits, int64_t steps, int64_t ranks) {
  const double p = 1 / static_cast<double>(ranks);
  double sum = 0;
  for (int64_t k = hits; k <= steps; ++k) {
    const double ways = std::lgamma(steps + 1) - std::lgamma(k + 1) - std::lgamma(steps - k + 1);
    sum += std::exp(ways + static_cast<double>(k) * std::log(p) +
                    static_cast<double>(steps - k) * std::log1p(-p));
  }
  return std::min(1.0, sum * static_cast<double>(ranks));
}

std::optional<Straggler> find_straggler(const std::vector<StepModel>& steps) {
  if (steps.empty() || steps[0].ranks() < 2) return std::nullopt;
  Straggler found = Finder(steps).find();
  const CoreWaits waits = core_waits_of(steps);
  const std::vector<StepModel> relieved = with_cores_at_all_times(steps);
  const Straggler again = Finder(relieved).find();
  const bool same = again.late_class == found.late_class && again.rank == found.rank;
  const bool busy =
      static_cast<double>(waits.busy_steps) > kBusySteps * static_cast<double>(found.steps);
  if (!same || (found.late_class == "none" && busy)) return starved(steps, relieved, waits);
  note_core_waits(waits, &found);
  return found;
}

nlohmann::ordered_json as_json(const Straggler& s) {
  using Json = nlohmann::ordered_json;
  return {{"class", s.late_class},
          {"rank", or_null(s.rank)},
          {"ranks", s.ranks},
          {"phase", or_null(s.phase)},
          {"period", s.period > 0 ? Json(s.period) : Json(nullptr)},
          {"cost_ms", s.cost_ms},
          {"step_ms", s.step_ms},
          {"without_ms", s.without_ms},
          {"times", s.times},
          {"score", or_null(s.score)},
          {"late_steps", s.late_steps},
          {"steps", s.steps},
          {"core_wait_ms", s.core_wait_ms},
          {"busy_steps", s.busy_steps},
          {"text", s.text}};
}

namespace {

constexpr size_t kPhases = static_cast<size_t>(Phase::teardown) + 1;

// By rank, the least over all steps; of one that never had a core in time, what is usual: of two
// ranks the lower one, for their mean is half of what the other waited.
template <class Value>
std::vector<double> least_of(const std::vector<StepModel>& steps, Value value) {
  std::vector<double> least;
  for (size_t rank = 0; rank < steps.front().ranks(); ++rank) {
    least.push_back(value(steps.front(), rank));
    for (const StepModel& step : steps) least.back() = std::min(least.back(), value(step, rank));
  }
  std::vector<double> sorted = least;
  std::sort(sorted.begin(), sorted.end());
  const double usual = sorted[(sorted.size() - 1) / 2];
  for (double& one : least) one = std::min(one, usual);
  return least;
}

// What is left of `value` where up to `waited` of it was waiting: never less than `least`.
double left_of(double value, double waited, double least) {
  return std::max(value - waited, std::min(value, least));
}

void relieve_work(size_t rank, double least, StepModel* step) {
  std::array<double, kPhases> work{}, waited{};
  double most = 0;  // of its work may be waiting
  for (size_t i = 0; i < kPhases; ++i) {
    work.at(i) = step->work_ns(rank, static_cast<Phase>(i));
    waited.at(i) = std::min(work.at(i), step->core_wait_ns(rank, static_cast<Phase>(i)));
    most += waited.at(i);
  }
  if (most <= 0) return;
  const double whole = step->work_ns(rank);
  const double taken = (whole - left_of(whole, most, least)) / most;
  for (StepModel::Slot& slot : step->slots)
    if (const auto phase = static_cast<size_t>(slot.phase); work.at(phase) > 0)
      slot.work_ns[rank] *= 1 - taken * waited.at(phase) / work.at(phase);
}

void relieve_delay(size_t rank, double least, StepModel* step) {
  const double whole = step->delay_ns(rank);
  if (whole <= 0) return;
  const double left = left_of(whole, step->others_core_wait_ns[rank], least);
  for (StepModel::Transfer& transfer : step->transfers) transfer.delay_ns[rank] *= left / whole;
}

}  // namespace

CoreWaits core_waits_of(const std::vector<StepModel>& steps) {
  CoreWaits waits;
  waits.mean_ms.resize(steps.empty() ? 0 : steps.front().ranks());
  for (const StepModel& step : steps) {
    std::vector<double> works;
    double longest = 0;
    for (size_t rank = 0; rank < step.ranks(); ++rank) {
      const double waited = step.core_wait_ns(rank);
      waits.mean_ms[rank] += waited / 1e6 / static_cast<double>(steps.size());
      const double delayed = std::min(step.delay_ns(rank), step.others_core_wait_ns[rank]);
      longest = std::max({longest, waited, delayed});
      works.push_back(step.work_ns(rank));
    }
    waits.busy_steps += longest > std::max(kLate * median_of(std::move(works)), kLeastMs * 1e6);
  }
  return waits;
}

std::vector<StepModel> with_cores_at_all_times(std::vector<StepModel> steps) {
  if (steps.empty()) return steps;
  const auto works =
      least_of(steps, [](const StepModel& step, size_t rank) { return step.work_ns(rank); });
  const auto delays =
      least_of(steps, [](const StepModel& step, size_t rank) { return step.delay_ns(rank); });
  for (StepModel& step : steps)
    for (size_t rank = 0; rank < step.ranks(); ++rank) {
      relieve_work(rank, works[rank], &step);
      relieve_delay(rank, delays[rank], &step);
    }
  return steps;
}

}  // namespace lockstep
