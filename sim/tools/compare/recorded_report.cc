#include "sim/tools/compare/recorded_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/json/json_text.h"
#include "sim/report/document.h"
#include "sim/report/machine.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using GapKind = RecordedGap::Kind;

const char* letter_of(RecordedSide side) { return side == RecordedSide::a ? "A" : "B"; }

// Names come from files that anybody may have written: they are not to steer a terminal.
std::string without_controls(std::string name) {
  for (char& c : name)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return name;
}

std::string kind_text(const std::string& kind) {
  return kind == "optimizer_state" ? "optimizer state" : kind;
}

std::string side_text(const std::string& side, const RankDivergence& ranks) {
  if (!ranks.found()) return "";
  return fmt::format("  {}'s own ranks disagree  step {}, {} of {}: rank {} differs from rank 0\n",
                     side, ranks.step, kind_text(ranks.kind), without_controls(ranks.tensor),
                     ranks.rank);
}

std::string first_text(const RecordedDivergence& found) {
  return fmt::format("  first difference  {} {}, {}{} of {}\n      A  {}\n      B  {}\n",
                     found.at_end ? "at the end, after step" : "step", found.step,
                     found.rank > 0 ? fmt::format("rank {}, ", found.rank) : "",
                     kind_text(found.kind), without_controls(found.tensor),
                     found.a.empty() ? "has no such tensor" : without_controls(found.a),
                     found.b.empty() ? "has no such tensor" : without_controls(found.b));
}

std::string recorded_answer(const RecordedComparison& comparison, const Style& style) {
  const RecordedDivergence& found = comparison.first;
  const int code = exit_code_of(comparison.verdict);
  const auto decided = verdict_of(comparison.verdict);
  if (!decided)
    return fmt::format("nothing to compare: no tensor was hashed in both; exit {}\n", code);
  const std::string verdict = style.verdict(*decided);
  if (decided == Verdict::inconclusive)
    return fmt::format("{}: {}; exit {}\n", verdict,
                       inconclusive_text(comparison.gaps, found.last_step), code);
  if (found.found())
    return fmt::format(
        "{}: {} of {} {} differ {} step {}, the first that does of {} {} hashed in "
        "both; exit {}\n",
        verdict, grouped(found.differing), grouped(found.in_step), plural(found.in_step, "tensor"),
        found.at_end ? "at the end, after" : "after", found.step, grouped(found.steps),
        plural(found.steps, "step"), code);
  if (comparison.verdict == RecordedVerdict::fail)
    return fmt::format("{}: ranks of one recording disagree; exit {}\n", verdict, code);
  return fmt::format("{}: {} hashes of {} {} compared, 0 differ\n", verdict, grouped(found.tensors),
                     grouped(found.steps), plural(found.steps, "step"));
}

Json first_json(const RecordedDivergence& found) {
  if (!found.found()) return nullptr;
  return {
      {"step", found.step},         {"at_end", found.at_end},       {"rank", found.rank},
      {"state_kind", found.kind},   {"tensor", found.tensor},       {"a_hash", or_null(found.a)},
      {"b_hash", or_null(found.b)}, {"differing", found.differing}, {"tensors", found.in_step}};
}

}  // namespace

std::string to_text(const RecordedGap& gap) {
  const std::string who =
      gap.side ? fmt::format("rank {} of {}", gap.rank, letter_of(*gap.side)) : "";
  switch (gap.kind) {
    case GapKind::no_end:
      return fmt::format("{} has no end (killed, or still running): its records stop after step {}",
                         who, gap.step);
    case GapKind::other_length:
      return fmt::format("A has {} {}, B has {}", grouped(gap.step), plural(gap.step, "step"),
                         grouped(gap.other));
    case GapKind::ranks_apart:
      return fmt::format("{} has {} {}, its rank 0 has {}", who, grouped(gap.step),
                         plural(gap.step, "step"), grouped(gap.other));
    case GapKind::not_hashed:
      return fmt::format("{} lacks the hashes of step {}", who, gap.step);
    case GapKind::end_unhashed:
      return fmt::format("{} lacks the hashes of its end, after step {}", who, gap.step);
    case GapKind::last_unhashed:
      return gap.step == 0 ? fmt::format("none of {} {} was hashed in both", grouped(gap.other),
                                         plural(gap.other, "step"))
                           : fmt::format("nothing after step {} of {} was hashed in both", gap.step,
                                         grouped(gap.other));
    case GapKind::chains_differ:
      return fmt::format(
          "the hashes of rank {} agree after step {}, and what its records hold of "
          "them does not: a file has changed",
          gap.rank, gap.step);
    case GapKind::no_tensors:
      return fmt::format(
          "{} lacks the tensors {}", gap.side ? letter_of(*gap.side) : "",
          gap.step == 0 ? std::string("of its end") : fmt::format("of step {}", gap.step));
  }
  return "";
}

const char* to_word(RecordedGap::Kind kind) {
  switch (kind) {
    case GapKind::no_end:
      return "no_end";
    case GapKind::other_length:
      return "other_length";
    case GapKind::ranks_apart:
      return "ranks_apart";
    case GapKind::not_hashed:
      return "not_hashed";
    case GapKind::end_unhashed:
      return "end_unhashed";
    case GapKind::last_unhashed:
      return "last_unhashed";
    case GapKind::chains_differ:
      return "chains_differ";
    case GapKind::no_tensors:
      return "no_tensors";
  }
  return "";
}

std::optional<Verdict> verdict_of(RecordedVerdict verdict) {
  switch (verdict) {
    case RecordedVerdict::pass:
      return Verdict::pass;
    case RecordedVerdict::fail:
      return Verdict::fail;
    case RecordedVerdict::inconclusive:
      return Verdict::inconclusive;
    case RecordedVerdict::nothing:
      break;
  }
  return std::nullopt;
}

int exit_code_of(RecordedVerdict verdict) {
  const auto decided = verdict_of(verdict);
  return decided ? exit_code_of(*decided) : kExitNothing;
}

std::string ranks_text(const RankDivergence& of_a, const RankDivergence& of_b) {
  return side_text("A", of_a) + side_text("B", of_b);
}

std::string buffers_text(const RankDivergence& of_a, const RankDivergence& of_b) {
  std::string text;
  for (const auto& [side, buffers] : {std::pair{"A", of_a}, {"B", of_b}})
    if (buffers.found())
      text += fmt::format(
          "  note: {}'s ranks hold buffers of their own  step {}, {}: rank {} differs from rank "
          "0\n",
          side, buffers.step, without_controls(buffers.tensor), buffers.rank);
  return text;
}

std::string gaps_text(const std::vector<RecordedGap>& gaps) {
  std::string text;
  for (const RecordedGap& gap : gaps) text += fmt::format("  not known  {}\n", to_text(gap));
  return text;
}

std::string inconclusive_text(const std::vector<RecordedGap>& gaps, int64_t last_step) {
  return fmt::format(
      "{}; {}", to_text(gaps.front()),
      last_step == 0 ? "no step could be compared"
                     : fmt::format("until step {}, the last one compared, 0 differ", last_step));
}

std::string recorded_comparison_text(const RecordedComparison& comparison, const std::string& a,
                                     const std::string& b, bool quiet, const Style& style) {
  std::string text;
  if (!quiet) {
    text = fmt::format("lockstep {} ({})\n\n", lockstep_version(), lockstep_commit());
    const std::string details =
        (comparison.first.found() ? first_text(comparison.first) : std::string()) +
        ranks_text(comparison.ranks_of_a, comparison.ranks_of_b) +
        buffers_text(comparison.buffers_of_a, comparison.buffers_of_b) + gaps_text(comparison.gaps);
    const auto verdict = verdict_of(comparison.verdict);
    text += fmt::format("{}A {}  B {}\n{}\n", verdict ? style.verdict(*verdict) + "  " : "", a, b,
                        details);
  }
  return text + recorded_answer(comparison, style);
}

Json gaps_json(const std::vector<RecordedGap>& gaps) {
  Json json = Json::array();
  for (const RecordedGap& gap : gaps)
    json.push_back({{"kind", to_word(gap.kind)},
                    {"side", gap.side ? Json(letter_of(*gap.side)) : Json(nullptr)},
                    {"rank", gap.rank},
                    {"step", gap.step},
                    {"text", to_text(gap)}});
  return json;
}

Json ranks_json(const RankDivergence& ranks) {
  if (!ranks.found()) return nullptr;
  return {{"rank", ranks.rank},
          {"step", ranks.step},
          {"state_kind", ranks.kind},
          {"tensor", ranks.tensor}};
}

Json as_json(const RecordedComparison& comparison, const std::string& a, const std::string& b) {
  const RecordedDivergence& found = comparison.first;
  return with_head({{"verdict", or_null(verdict_of(comparison.verdict))},
                    {"exit_code", exit_code_of(comparison.verdict)},
                    {"a", a},
                    {"b", b},
                    {"recordings",
                     {{"compared", "hashes"},
                      {"steps", found.steps},
                      {"last_step", found.last_step},
                      {"tensors", found.tensors},
                      {"first", first_json(found)},
                      {"ranks_of_a", ranks_json(comparison.ranks_of_a)},
                      {"ranks_of_b", ranks_json(comparison.ranks_of_b)},
                      {"buffers_of_a", ranks_json(comparison.buffers_of_a)},
                      {"buffers_of_b", ranks_json(comparison.buffers_of_b)},
                      {"gaps", gaps_json(comparison.gaps)}}}});
}

}  // namespace lockstep
