#include "scenarios/base/verdict.h"

#include <span>

#include "scenarios/base/error.h"

namespace lockstep {
namespace {

template <class V>
struct VerdictWord {
  V value;
  const char* word;
};

constexpr VerdictWord<Verdict> kRunWords[] = {
    {Verdict::pass, "pass"}, {Verdict::fail, "fail"}, {Verdict::inconclusive, "inconclusive"}};
constexpr VerdictWord<LaneVerdict> kLaneWords[] = {{LaneVerdict::pass, "pass"},
                                                   {LaneVerdict::fail, "fail"},
                                                   {LaneVerdict::inconclusive, "inconclusive"},
                                                   {LaneVerdict::voided, "void"},
                                                   {LaneVerdict::not_applicable, "not_applicable"}};
constexpr VerdictWord<CheckVerdict> kCheckWords[] = {{CheckVerdict::pass, "pass"},
                                                     {CheckVerdict::fail, "fail"},
                                                     {CheckVerdict::inconclusive, "inconclusive"},
                                                     {CheckVerdict::not_run, "not_run"}};
constexpr VerdictWord<ControlVerdict> kControlWords[] = {{ControlVerdict::detected, "detected"},
                                                         {ControlVerdict::missed, "missed"},
                                                         {ControlVerdict::not_run, "not_run"}};
constexpr VerdictWord<CommonVerdict> kCommonWords[] = {{CommonVerdict::found, "found"},
                                                       {CommonVerdict::missed, "missed"},
                                                       {CommonVerdict::not_run, "not_run"}};
constexpr VerdictWord<RunEnding> kEndingWords[] = {{RunEnding::completed, "completed"},
                                                   {RunEnding::failed, "failed"}};

std::span<const VerdictWord<Verdict>> words_like(Verdict) { return kRunWords; }
std::span<const VerdictWord<LaneVerdict>> words_like(LaneVerdict) { return kLaneWords; }
std::span<const VerdictWord<CheckVerdict>> words_like(CheckVerdict) { return kCheckWords; }
std::span<const VerdictWord<ControlVerdict>> words_like(ControlVerdict) { return kControlWords; }
std::span<const VerdictWord<CommonVerdict>> words_like(CommonVerdict) { return kCommonWords; }
std::span<const VerdictWord<RunEnding>> words_like(RunEnding) { return kEndingWords; }

template <class V>
const char* word_like(V value) {
  for (const auto& row : words_like(value))
    if (row.value == value) return row.word;
  check_failed("word_like", __FILE__, __LINE__, "every verdict has a word");
}

}  // namespace

const char* to_word(Verdict verdict) { return word_like(verdict); }
const char* to_word(LaneVerdict verdict) { return word_like(verdict); }
const char* to_word(CheckVerdict verdict) { return word_like(verdict); }
const char* to_word(ControlVerdict verdict) { return word_like(verdict); }
const char* to_word(CommonVerdict verdict) { return word_like(verdict); }
const char* to_word(RunEnding ending) { return word_like(ending); }

template <class V>
std::optional<V> from_word(std::string_view word) {
  for (const auto& row : words_like(V{}))
    if (word == row.word) return row.value;
  return std::nullopt;
}
template std::optional<Verdict> from_word(std::string_view);
template std::optional<LaneVerdict> from_word(std::string_view);
template std::optional<CheckVerdict> from_word(std::string_view);
template std::optional<ControlVerdict> from_word(std::string_view);
template std::optional<CommonVerdict> from_word(std::string_view);
template std::optional<RunEnding> from_word(std::string_view);

int exit_code_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return 0;
    case Verdict::fail:
      return 1;
    case Verdict::inconclusive:
      break;
  }
  return 3;
}

Verdict worse_verdict(Verdict a, Verdict b) {
  for (const Verdict worst : {Verdict::fail, Verdict::inconclusive})
    if (a == worst || b == worst) return worst;
  return Verdict::pass;
}

}  // namespace lockstep
