#include "sim/judge/kill.h"

#include <algorithm>

#include "sim/judge/expectation.h"

namespace lockstep {
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

bool fails(const std::pair<std::string, std::string>& named) { return named.second == "fail"; }

bool expects_nothing(const Expectation& expect) {
  return expect.verdict.value_or("pass") == "pass" && expect.outcome != "failed" &&
         !(expect.straggler && expect.straggler->late_class != "none") &&
         std::none_of(expect.lanes.begin(), expect.lanes.end(), fails) &&
         std::none_of(expect.checks.begin(), expect.checks.end(), fails);
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
