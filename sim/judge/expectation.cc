#include "sim/judge/expectation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/scenario.h"

namespace lockstep {
namespace {

// Collects what differs, in words.
class Comparison {
 public:
  explicit Comparison(std::vector<std::string>* unmet) : unmet_(unmet) {}

  template <class T>
  void same(const std::string& what, const std::optional<T>& expected,
            const std::optional<T>& got) {
    if (!expected || (got && *got == *expected)) return;
    add(what, text_of(*expected), got ? text_of(*got) : "none");
  }
  void add(const std::string& what, const std::string& expected, const std::string& got) {
    unmet_->push_back(fmt::format("{}: expected {}, got {}", what, expected, got));
  }

 private:
  template <class T>
  static std::string text_of(const T& value) {
    if constexpr (std::is_enum_v<T>)
      return to_word(value);
    else
      return fmt::format("{}", value);
  }

  std::vector<std::string>* unmet_;
};

void compare_lanes(const Expectation& expect, const RunResult& result, Comparison* comparison) {
  for (const auto& [lane, verdict] : expect.lanes) {
    std::optional<LaneVerdict> got;
    for (const LaneResult& known : result.lanes)
      if (known.lane == lane) got = known.verdict;
    comparison->same(fmt::format("lane {}", to_word(lane)), std::optional(verdict), got);
  }
}

void compare_checks(const Expectation& expect, const RunResult& result, Comparison* comparison) {
  for (const auto& [check, verdict] : expect.checks) {
    std::optional<CheckVerdict> got;
    for (const auto& [known, its] : result.checks)
      if (known == check) got = its;
    comparison->same("check " + check, std::optional(verdict), got);
  }
}

void compare_divergence(const Expectation& expect, const RunResult& result,
                        Comparison* comparison) {
  const auto& d = result.first_divergence;
  const auto text = [](const std::string& word) {
    return word.empty() ? std::nullopt : std::optional<std::string>(word);
  };
  const auto& f = result.failure;
  const std::string failure_cause = f ? f->cause : "";
  comparison->same("cause", expect.cause, d ? text(d->cause) : text(failure_cause));
  comparison->same("step", expect.step, d ? std::optional(d->step) : std::nullopt);
  comparison->same("tensor", expect.tensor, d ? text(d->tensor) : std::nullopt);
  comparison->same("bucket", expect.bucket, d ? d->bucket : std::nullopt);
}

void compare_named(const Expectation& expect, const std::optional<Failure>& failure,
                   Comparison* comparison) {
  const auto collective = failure ? failure->explanation.collective : std::nullopt;
  const bool phase_known = failure && !failure->phase.empty();
  comparison->same("named collective", expect.named_collective,
                   collective ? std::optional(collective->sequence) : std::nullopt);
  comparison->same("named bucket", expect.named_bucket,
                   collective ? collective->bucket : std::nullopt);
  comparison->same("named phase", expect.named_phase,
                   phase_known ? std::optional(failure->phase) : std::nullopt);
}

double known_after_ms(const RunResult& result) {
  const auto& f = result.failure;
  return f && f->after_ms ? *f->after_ms : static_cast<double>(result.duration_ms);
}

void compare_failure(const Expectation& expect, const RunResult& result, Comparison* comparison) {
  const auto& f = result.failure;
  comparison->same("outcome", expect.outcome, std::optional(result.outcome));
  comparison->same("primary_rank", expect.primary_rank, f ? f->rank : std::nullopt);
  comparison->same("kind", expect.kind, f ? std::optional(f->kind) : std::nullopt);
  compare_named(expect, f, comparison);
  if (!expect.within_ms) return;
  const double ms = known_after_ms(result);
  if (ms > static_cast<double>(*expect.within_ms))
    comparison->add("within_ms", fmt::format("at most {}", *expect.within_ms),
                    fmt::format("{:.0f}", std::ceil(ms)));
}

void compare_straggler(const Expectation& expect, const RunResult& result, Comparison* comparison) {
  if (!expect.straggler) return;
  const auto& s = result.straggler;
  comparison->same("straggler", std::optional(expect.straggler->late_class),
                   std::optional<std::string>(s ? s->late_class : "not known"));
  comparison->same("straggler's rank", expect.straggler->rank, s ? s->rank : std::nullopt);
}

// Does the expectation speak of what an inconclusive run shows?
bool asks_for_inconclusive(const Expectation& expect) {
  if (expect.verdict) return *expect.verdict == Verdict::inconclusive;
  return expect.outcome == RunEnding::failed;
}

// Of the checks, "timeline" alone is about time, and alone says that it is not sure.
void leave_out_timeline(const RunResult& result, Expectation* expect) {
  const auto is_timeline = [](const auto& check) { return check.first == "timeline"; };
  const auto unsure = [&](const auto& check) {
    return is_timeline(check) && check.second == CheckVerdict::inconclusive;
  };
  if (std::none_of(result.checks.begin(), result.checks.end(), unsure)) return;
  if (std::erase_if(expect->checks, is_timeline) == 0) return;
  if (result.verdict == Verdict::inconclusive) expect->verdict.reset();
}

// What is left to ask where a busy machine may be why the rest is unmet.
Expectation without_timing(Expectation expect, const RunResult& result) {
  leave_out_timeline(result, &expect);
  if (result.straggler && result.straggler->late_class == kStarved) expect.straggler.reset();
  const auto& f = result.failure;
  if (f && expect.within_ms && known_after_ms(result) - f->core_wait_ms <= *expect.within_ms)
    expect.within_ms.reset();
  if (!f || f->kind != "starved") return expect;
  Expectation left;  // of what the run came to before it broke down
  left.checks = expect.checks;
  if (result.verdict == Verdict::fail) left.verdict = expect.verdict;
  return left;
}

std::string straggler_words(const ExpectedStraggler& straggler) {
  if (straggler.late_class == "none") return "no straggler";
  const std::string who = straggler.rank ? fmt::format("rank {} ", *straggler.rank) : "";
  return fmt::format("straggler {}{}", who, straggler.late_class);
}

}  // namespace

std::string to_words(const Expectation& expect) {
  std::string text;
  const auto add = [&](const std::string& word) { text += (text.empty() ? "" : ", ") + word; };
  if (expect.verdict) add(to_word(*expect.verdict));
  if (expect.outcome) add(to_word(*expect.outcome));
  if (expect.primary_rank) add(fmt::format("rank {}", *expect.primary_rank));
  if (expect.kind) add(*expect.kind);
  if (expect.named_collective) add(fmt::format("collective {}", *expect.named_collective));
  if (expect.named_bucket) add(fmt::format("in bucket {}", *expect.named_bucket));
  if (expect.named_phase) add("in " + *expect.named_phase);
  if (expect.straggler) add(straggler_words(*expect.straggler));
  if (expect.cause) add("cause " + *expect.cause);
  if (expect.step) add(fmt::format("step {}", *expect.step));
  if (expect.tensor) add("tensor " + *expect.tensor);
  if (expect.bucket) add(fmt::format("bucket {}", *expect.bucket));
  for (const auto& [lane, verdict] : expect.lanes)
    add(fmt::format("lane {} {}", to_word(lane), to_word(verdict)));
  for (const auto& [check, verdict] : expect.checks)
    add(fmt::format("check {} {}", check, to_word(verdict)));
  if (expect.within_ms) add(fmt::format("within {} ms", *expect.within_ms));
  return text.empty() ? "nothing" : text;
}

const Expectation* expectation_for(const std::vector<Expectation>& expectations,
                                   const std::string& libtorch) {
  for (const Expectation& expect : expectations) {
    if (expect.libtorch.empty()) return &expect;
    if (libtorch.empty()) return nullptr;
    const auto range = VersionRange::parse(expect.libtorch);
    LOCKSTEP_CHECK(range.has_value(), "the scenario's reader lets only ranges pass");
    if (range->contains(libtorch)) return &expect;
  }
  check_failed("expectation_for", __FILE__, __LINE__, "the last one holds for all");
}

std::vector<std::string> unmet_of(const Expectation& expect, const RunResult& result) {
  std::vector<std::string> unmet;
  Comparison comparison(&unmet);
  comparison.same("verdict", expect.verdict, std::optional(result.verdict));
  compare_failure(expect, result, &comparison);
  compare_divergence(expect, result, &comparison);
  compare_lanes(expect, result, &comparison);
  compare_checks(expect, result, &comparison);
  compare_straggler(expect, result, &comparison);
  return unmet;
}

void judge_expectation(const Expectation& expect, bool interrupted, RunResult* result) {
  result->expected = to_words(expect);
  result->unmet = unmet_of(expect, *result);
  result->met = std::nullopt;
  const bool machine_explains =
      !result->unmet.empty() && unmet_of(without_timing(expect, *result), *result).empty();
  if (interrupted)
    result->undecided = Undecided::interrupted;
  else if (machine_explains)
    result->undecided = Undecided::busy_machine;
  else if (result->verdict == Verdict::inconclusive && !asks_for_inconclusive(expect))
    result->undecided = Undecided::inconclusive;
  else
    result->met = result->unmet.empty();
}

namespace {

// Expectations of one thing each, out of all.
Expectation of_finding(const Expectation& expect) {
  Expectation part;
  part.verdict = expect.verdict;
  part.outcome = expect.outcome;
  part.lanes = expect.lanes;
  part.checks = expect.checks;
  part.straggler = expect.straggler;
  if (part.straggler) part.straggler->rank.reset();
  return part;
}

Expectation of_cause(const Expectation& expect) {
  Expectation part;
  part.cause = expect.cause;
  part.kind = expect.kind;
  return part;
}

Expectation of_place(const Expectation& expect) {
  Expectation part;
  part.step = expect.step;
  part.tensor = expect.tensor;
  part.bucket = expect.bucket;
  part.primary_rank = expect.primary_rank;
  part.named_collective = expect.named_collective;
  part.named_bucket = expect.named_bucket;
  part.named_phase = expect.named_phase;
  part.straggler = expect.straggler;
  return part;
}

template <class V>
bool any_fails(const V& verdicts) {
  return std::any_of(verdicts.begin(), verdicts.end(), [](const auto& named) {
    return named.second == decltype(named.second)::fail;
  });
}

bool expects_nothing(const Expectation& expect) {
  return expect.verdict.value_or(Verdict::pass) == Verdict::pass &&
         expect.outcome != RunEnding::failed &&
         !(expect.straggler && expect.straggler->late_class != "none") &&
         !any_fails(expect.lanes) && !any_fails(expect.checks);
}

std::optional<bool> is_met(const Expectation& part, const RunResult& result, bool asked) {
  if (!asked) return std::nullopt;
  return unmet_of(part, result).empty();
}

}  // namespace

Kill kill_of(const Expectation& expect, const RunResult& result) {
  Kill kill;
  kill.hidden = expects_nothing(expect);
  kill.caught = result.met.has_value() && unmet_of(of_finding(expect), result).empty();
  kill.cause_right = is_met(of_cause(expect), result, expect.cause || expect.kind);
  const bool placed = expect.step || expect.tensor || expect.bucket || expect.primary_rank ||
                      (expect.straggler && expect.straggler->rank);
  kill.place_right = is_met(of_place(expect), result, placed);
  return kill;
}

}  // namespace lockstep
