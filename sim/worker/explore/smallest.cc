#include "sim/worker/explore/smallest.h"

#include <memory>
#include <utility>

#include "scenarios/base/clock.h"
#include "scenarios/base/error.h"
#include "sim/worker/explore/rehearsal.h"

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
    ScheduleDraws draws(spec_.seed);
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

}  // namespace lockstep
