#include "sim/worker/explore/explore.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <unordered_set>

#include "scenarios/base/clock.h"
#include "scenarios/base/hash.h"
#include "sim/worker/explore/rehearsal.h"
#include "sim/worker/explore/smallest.h"

namespace lockstep {
namespace {

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {-1};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(static_cast<size_t>(cpu), &set)) cpus.push_back(cpu);
  return cpus;
}

// With its ranks, so that a schedule begins and ends without waking another processor.
void stay_on(int cpu) {
  if (cpu < 0) return;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(static_cast<size_t>(cpu), &only);
  sched_setaffinity(0, sizeof only, &only);
}

uint64_t hash_of(const std::vector<Choice>& choices) {
  std::vector<uint16_t> taken;
  for (const Choice& choice : choices) taken.push_back(choice.taken);
  return hash64(taken.data(), taken.size() * sizeof(uint16_t));
}

class Explorer {
 public:
  Explorer(const RunPlan& plan, const ExploreSpec& spec, const ExploreWatch& watch)
      : plan_(plan), spec_(spec), watch_(watch), cpus_(allowed_cpus()), reference_(plan) {
    result_.reference = reference_.kind();
    result_.steps = plan.scenario.steps;
    result_.world_size = plan.scenario.world_size;
  }

  ExploreResult run() {
    groups_.push_back(make_group(0));
    usual();
    const int64_t start_ns = now_ns();
    if (spec_.replay)
      replay();
    else if (spec_.exhaustive)
      exhaust();
    else
      draw();
    result_.duration_ms = (now_ns() - start_ns) / 1'000'000;
    result_.jobs = static_cast<int64_t>(groups_.size());
    if (result_.explored > 0)
      result_.decisions = static_cast<double>(decisions_) / static_cast<double>(result_.explored);
    result_.distinct = static_cast<int64_t>(distinct_.size());
    for (ExploreFinding& finding : result_.findings)
      finding.smallest = smallest_case(plan_, spec_, usual_decisions_, finding.failure.kind,
                                       scripts_.at(finding.failure.kind), cpus_.front(),
                                       [this] { return stops(); });
    return std::move(result_);
  }

 private:
  std::unique_ptr<Rehearsal> make_group(size_t index) {
    return std::make_unique<Rehearsal>(plan_, reference_, cpus_[index % cpus_.size()]);
  }

  // The schedule that all others are measured by; it may be wrong itself.
  void usual() {
    ScriptedChooser chooser({});
    const auto failure = groups_.front()->run(chooser);
    usual_decisions_ = static_cast<int64_t>(groups_.front()->choices().size());
    if (failure && !reference_.knows(plan_.scenario.steps))
      throw std::runtime_error("the usual schedule fails, and there is no golden run: " +
                               failure->what);
  }

  bool stops() {
    if (result_.signal == 0) result_.signal = watch_.signal();
    return result_.signal != 0;
  }

  // One schedule has been run. With the lock.
  void note(int64_t index, std::optional<uint64_t> seed, const std::vector<Choice>& choices,
            std::optional<ScheduleFailure> failure) {
    ++result_.explored;
    decisions_ += static_cast<int64_t>(choices.size());
    if (distinct_.size() < kDistinctMax) distinct_.insert(hash_of(choices));
    if (!failure) return;
    auto& findings = result_.findings;
    const auto known = std::find_if(findings.begin(), findings.end(), [&](const auto& finding) {
      return finding.failure.kind == failure->kind;
    });
    ExploreFinding finding{.failure = std::move(*failure), .schedule = index + 1, .seed = seed};
    const std::string kind = finding.failure.kind;
    if (!spec_.all && !findings.empty()) {  // only the very first counts
      if (index + 1 > findings.front().schedule) return;
      findings.clear();
      findings.push_back(std::move(finding));
    } else if (known == findings.end()) {
      findings.push_back(std::move(finding));
    } else {
      finding.count = ++known->count;
      if (known->schedule < index + 1) return;
      *known = std::move(finding);
    }
    first_finding_ = std::min(first_finding_.load(), index);
    scripts_[kind] = script_of(choices);
  }

  void replay() {
    Rehearsal& group = *groups_.front();
    std::vector<Choice> first;
    std::optional<ScheduleFailure> what;
    for (int64_t i = 0; i < kReplays && !stops(); ++i) {
      const auto failure = run_seed(group, *spec_.replay);
      if (i == 0) {
        first = group.choices();
        what = failure;
        note(0, spec_.replay, first, failure);
      } else {
        ++result_.explored;
        decisions_ += static_cast<int64_t>(group.choices().size());
      }
      const bool same_choices =
          script_of(first) == script_of(group.choices()) && first.size() == group.choices().size();
      const bool same_failure =
          what.has_value() == failure.has_value() &&
          (!what || (what->kind == failure->kind && what->what == failure->what));
      result_.reproduced += same_choices && same_failure;
    }
  }

  std::optional<ScheduleFailure> run_seed(Rehearsal& group, uint64_t seed) {
    SeededChooser chooser(2 * plan_.scenario.world_size, usual_decisions_, spec_.preemptions);
    chooser.begin(seed);
    return group.run(chooser);
  }

  void exhaust() {
    Rehearsal& group = *groups_.front();
    ExhaustiveChooser chooser(spec_.preemptions.value_or(kExhaustivePreemptions));
    int64_t told_ns = now_ns();
    for (int64_t i = 0; i < spec_.schedules; ++i) {
      auto failure = group.run(chooser);
      note(i, std::nullopt, group.choices(), std::move(failure));
      if (!result_.findings.empty() && !spec_.all) break;
      result_.exhausted = !chooser.advance();
      if (result_.exhausted) break;
      if (now_ns() - told_ns < kTellNs) continue;
      told_ns = now_ns();
      watch_.progress(i + 1);
      if (stops()) break;
    }
  }

  void draw() {
    const int64_t jobs = std::clamp<int64_t>(
        spec_.jobs > 0 ? spec_.jobs : static_cast<int64_t>(cpus_.size()), 1, spec_.schedules);
    while (static_cast<int64_t>(groups_.size()) < jobs)
      groups_.push_back(make_group(groups_.size()));
    const int ended = eventfd(0, EFD_CLOEXEC);
    std::vector<std::thread> threads;
    std::atomic<int64_t> left{jobs};
    for (size_t i = 0; i < groups_.size(); ++i)
      threads.emplace_back([&, i, ended] {
        stay_on(cpus_[i % cpus_.size()]);
        draw_in(*groups_[i]);
        if (--left > 0) return;
        const uint64_t one = 1;
        if (write(ended, &one, sizeof one) != sizeof one) return;
      });
    pollfd ready{ended, POLLIN, 0};
    int64_t told = 0;
    while (poll(&ready, 1, kTellNs / 1'000'000) != 1) {
      // A group that hangs must not look like one that goes on.
      if (const int64_t now = next_; now != told)
        watch_.progress(told = std::min(now, spec_.schedules));
      if (stops()) stopped_ = true;
    }
    for (std::thread& thread : threads) thread.join();
    close(ended);
  }

  void draw_in(Rehearsal& group) {
    SeededChooser chooser(2 * plan_.scenario.world_size, usual_decisions_, spec_.preemptions);
    while (!stopped_) {
      const int64_t index = next_++;
      if (index >= spec_.schedules || (!spec_.all && index > first_finding_)) return;
      const uint64_t seed = schedule_seed(spec_.seed, index);
      chooser.begin(seed);
      auto failure = group.run(chooser);
      const std::lock_guard lock(mutex_);
      note(index, seed, group.choices(), std::move(failure));
    }
  }

  static constexpr int64_t kTellNs = 200'000'000;
  static constexpr size_t kDistinctMax = 10'000'000;  // memory: some 500 MB

  const RunPlan& plan_;
  const ExploreSpec& spec_;
  const ExploreWatch& watch_;
  const std::vector<int> cpus_;
  ExploreReference reference_;
  std::vector<std::unique_ptr<Rehearsal>> groups_;
  int64_t usual_decisions_ = 0;
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> first_finding_{INT64_MAX};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;  // of what follows
  ExploreResult result_;
  int64_t decisions_ = 0;
  std::unordered_set<uint64_t> distinct_;
  std::map<std::string, Script> scripts_;  // by kind of finding
};

}  // namespace

ExploreResult explore_schedules(const RunPlan& plan, const ExploreSpec& spec,
                                const ExploreWatch& watch) {
  return Explorer(plan, spec, watch).run();
}

}  // namespace lockstep
