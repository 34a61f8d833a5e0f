#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// What is said of runs and of what they are judged by: closed lists, whose words are for people,
// JSON and files alone (docs/verdicts.md). Nothing but verdict.cc compares with a word.

// Of a run, a sweep's bound, a comparison, or of all of an invocation.
enum class Verdict { pass, fail, inconclusive };

// Of a lane, or of a stored golden. voided ("void"): its control was missed.
enum class LaneVerdict { pass, fail, inconclusive, voided, not_applicable };

// Of a check beside the lanes. not_run: nobody recorded it.
enum class CheckVerdict { pass, fail, inconclusive, not_run };

// Of the damage that a lane is shown on purpose.
enum class ControlVerdict { detected, missed, not_run };

// Of a check that is common today, which has no weight in a verdict.
enum class CommonVerdict { found, missed, not_run };

// Did a run make all its steps?
enum class RunEnding { completed, failed };

const char* to_word(Verdict verdict);
const char* to_word(LaneVerdict verdict);
const char* to_word(CheckVerdict verdict);
const char* to_word(ControlVerdict verdict);
const char* to_word(CommonVerdict verdict);
const char* to_word(RunEnding ending);

// Of any of these lists; nothing where the word is not in it.
template <class V>
std::optional<V> from_word(std::string_view word);

// What an invocation ends with that nothing else decides (signals, bad input).
int exit_code_of(Verdict verdict);

// Fail, then inconclusive.
Verdict worse_verdict(Verdict a, Verdict b);

// In JSON each is its word. What is read throws what J throws, of any other.
template <class J>
void to_json(J& json, Verdict verdict) {
  json = to_word(verdict);
}
template <class J>
void to_json(J& json, LaneVerdict verdict) {
  json = to_word(verdict);
}
template <class J>
void to_json(J& json, CheckVerdict verdict) {
  json = to_word(verdict);
}
template <class J>
void to_json(J& json, ControlVerdict verdict) {
  json = to_word(verdict);
}
template <class J>
void to_json(J& json, CommonVerdict verdict) {
  json = to_word(verdict);
}
template <class J>
void to_json(J& json, RunEnding ending) {
  json = to_word(ending);
}
template <class V, class J>
V verdict_in(const J& json) {
  const auto word = json.template get<std::string>();
  const auto found = from_word<V>(word);
  if (!found) throw J::other_error::create(501, "no verdict is called " + word, &json);
  return *found;
}
template <class J>
void from_json(const J& json, Verdict& verdict) {
  verdict = verdict_in<Verdict>(json);
}
template <class J>
void from_json(const J& json, LaneVerdict& verdict) {
  verdict = verdict_in<LaneVerdict>(json);
}
template <class J>
void from_json(const J& json, CheckVerdict& verdict) {
  verdict = verdict_in<CheckVerdict>(json);
}
template <class J>
void from_json(const J& json, RunEnding& ending) {
  ending = verdict_in<RunEnding>(json);
}

}  // namespace lockstep
