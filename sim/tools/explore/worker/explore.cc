#include "sim/tools/explore/worker/explore.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <unordered_set>
#include <utility>

#include "scenarios/base/clock.h"
#include "scenarios/base/error.h"
#include "scenarios/base/file.h"
#include "scenarios/base/hash.h"
#include "scenarios/json/json_text.h"
#include "scenarios/workloads/workload.h"
#include "sim/launch/event_loop.h"
#include "sim/launch/limits.h"
#include "sim/tools/explore/worker/rehearsal.h"
#include "sim/worker/libraries.h"

namespace lockstep {
namespace {

constexpr int64_t kTrialsMax = 10'000;
constexpr int64_t kSearchMax = 400;  // schedules of one case and one way of looking for them
constexpr std::chrono::seconds kPatience{20};

// Tries cases out in groups of their own.
class Lab : public ShrinkLab {
 public:
  Lab(const RunPlan& plan, const ExploreSpec& spec, int64_t decisions, std::string kind, int cpu,
      std::function<bool()> is_late)
      : plan_(plan),
        spec_(spec),
        decisions_(decisions),
        kind_(std::move(kind)),
        cpu_(cpu),
        is_late_(std::move(is_late)),
        deadline_(deadline_after(kPatience)) {
    prepare(plan);
    all_ = group_->trained_parameters();
    of_ = whole();
  }

  ExploreCase whole() const {
    return {
        .steps = plan_.scenario.steps, .world_size = plan_.scenario.world_size, .parameters = all_};
  }

  std::optional<std::vector<Choice>> search(const ExploreCase& tried) override {
    if (!prepare(tried)) return std::nullopt;
    if (fails_by({})) return group_->choices();
    const std::vector<Choice> usual = group_->choices();
    if (search_one_decision(usual) || search_two_decisions(usual) || search_seeds(tried))
      return group_->choices();
    return std::nullopt;
  }

  std::optional<std::vector<Choice>> run(const ExploreCase& tried, const Script& script) override {
    if (!prepare(tried)) return std::nullopt;
    if (!fails_by(script)) return std::nullopt;
    return group_->choices();
  }

  bool is_late() override {
    return trials_ >= kTrialsMax || Clock::now() >= deadline_ || is_late_();
  }

  SmallestCase trace(const Shrunk& shrunk) {
    LOCKSTEP_CHECK(prepare(shrunk.smallest), "a case that was tried cannot be");
    ScriptedChooser chooser(shrunk.script);
    const auto failure = group_->run(chooser, true);
    LOCKSTEP_CHECK(failure.has_value(), "a schedule that failed does not fail again");
    return {.steps = shrunk.smallest.steps,
            .world_size = shrunk.smallest.world_size,
            .parameters = shrunk.smallest.parameters,
            .preemptions = preemptions_of(group_->choices()),
            .decisions = static_cast<int64_t>(shrunk.script.size()),
            .failure = *failure,
            .acts = group_->acts()};
  }

 private:
  bool fails(Chooser& chooser) {
    ++trials_;
    const auto failure = group_->run(chooser);
    return failure && failure->kind == kind_;
  }

  bool fails_by(Script script) {
    ScriptedChooser chooser(std::move(script));
    return fails(chooser);
  }

  // Every schedule that differs from the usual one in one decision and takes its way behind it.
  bool search_one_decision(const std::vector<Choice>& usual) {
    int64_t tried = 0;
    for (size_t at = 0; at < usual.size(); ++at)
      for (uint16_t taken = 0; taken < usual[at].count; ++taken) {
        if (taken == usual[at].usual) continue;
        if (++tried > kSearchMax || is_late()) return false;
        if (fails_by({{static_cast<int64_t>(at), taken}})) return true;
      }
    return false;
  }

  bool search_two_decisions(const std::vector<Choice>& usual) {
    if (usual.size() < 2) return false;
    SplitMix64 draws(spec_.seed);
    for (int64_t i = 0; i < kSearchMax / 2 && !is_late(); ++i) {
      auto first = static_cast<int64_t>(draws.below(usual.size()));
      auto second = static_cast<int64_t>(draws.below(usual.size()));
      if (first == second) continue;
      if (first > second) std::swap(first, second);
      const auto taken =
          static_cast<uint16_t>(draws.below(usual[static_cast<size_t>(first)].count));
      if (fails_by({{first, taken}, {second, static_cast<uint16_t>(draws.below(3))}})) return true;
    }
    return false;
  }

  bool search_seeds(const ExploreCase& tried) {
    SeededChooser chooser(2 * tried.world_size, decisions_, spec_.preemptions);
    for (int64_t i = 0; i < kSearchMax / 2 && !is_late(); ++i) {
      chooser.begin(schedule_seed(spec_.seed, i));
      if (fails(chooser)) return true;
    }
    return false;
  }

  bool prepare(const ExploreCase& tried) {
    const bool same = tried.steps == of_.steps && tried.world_size == of_.world_size &&
                      tried.parameters == of_.parameters;
    if (same) return group_ != nullptr;
    of_ = tried;
    group_.reset();
    const auto plan = cut_down(plan_, tried, all_);
    if (!plan) return false;
    prepare(*plan);
    if (reference_->knows(plan->scenario.steps)) return true;
    // Without a golden run the usual schedule is what all others must agree with.
    ScriptedChooser usual({});
    group_->run(usual);
    if (!reference_->knows(plan->scenario.steps)) group_.reset();
    return group_ != nullptr;
  }

  void prepare(const RunPlan& plan) {
    group_.reset();
    reference_ = std::make_unique<ExploreReference>(plan);
    group_ = std::make_unique<Rehearsal>(plan, *reference_, cpu_);
  }

  const RunPlan& plan_;
  const ExploreSpec& spec_;
  const int64_t decisions_;
  const std::string kind_;
  const int cpu_;
  const std::function<bool()> is_late_;
  const Deadline deadline_;
  int64_t trials_ = 0;
  std::vector<std::string> all_;  // parameters that the plan trains
  ExploreCase of_;                // the group's
  std::unique_ptr<ExploreReference> reference_;
  std::unique_ptr<Rehearsal> group_;
};

}  // namespace

SmallestCase smallest_case(const RunPlan& plan, const ExploreSpec& spec, int64_t decisions,
                           const std::string& kind, const Script& script, int cpu,
                           const std::function<bool()>& is_late) {
  Lab lab(plan, spec, decisions, kind, cpu, is_late);
  return lab.trace(shrink(lab, lab.whole(), script));
}

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

namespace {

using Json = nlohmann::ordered_json;

void say(const Json& line) {
  fmt::print("{}\n", line.dump(-1, ' ', false, Json::error_handler_t::replace));
  std::fflush(stdout);
}

Json read_json(const std::string& path) {
  const auto text = read_foreign_file(path, kResultBytesMost);
  if (!text) throw std::runtime_error(to_text(text.errors().front()));
  auto json = parse_foreign_json(text.value(), path, "a plan and what to explore of it");
  if (!json) throw std::runtime_error(to_text(json.errors().front()));
  return std::move(json.value());
}

}  // namespace

int run_explore(const std::string& file) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  ExploreResult result;
  try {
    Signals signals;  // before any thread: they all leave them to us
    const Json given = read_json(file);
    take_room(1);
    prepare_libtorch(1);
    const ExploreWatch watch{.progress =
                                 [](int64_t explored) {
                                   say({{"explored", explored}});
                                 },
                             .signal = [&] { return signals.next(); }};
    result = explore_schedules(plan_from_json(given.at("plan")),
                               explore_spec_from_json(given.at("spec")), watch);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    result.broken = text.substr(0, text.find('\n'));
  }
  result.libraries = libraries_json();
  say({{"result", as_json(result)}});
  return 0;
}

}  // namespace lockstep
