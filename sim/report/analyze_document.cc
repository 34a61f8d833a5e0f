#include "sim/report/analyze_document.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "scenarios/json/json_text.h"
#include "scenarios/json/schema.h"
#include "sim/analysis/metrics.h"
#include "sim/record/recorder.h"
#include "sim/report/document.h"
#include "sim/report/machine.h"
#include "sim/report/text_style.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using How = RecordedEnd::How;
using InVain = RecordedEnd::Meeting;

// "rank 1", "ranks 0, 1 and 2"
std::string ranks_of_text(const std::vector<int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  return text;
}

std::string duration_text(int64_t ns) {
  const double ms = static_cast<double>(ns) / 1e6;
  return ms < 1000 ? fmt::format("{:.0f} ms", ms) : fmt::format("{:.1f} s", ms / 1000);
}

std::string place_text(Phase phase, int64_t step) {
  return phase == Phase{} ? fmt::format("step {}", step)
                          : fmt::format("{} of step {}", to_word(phase), step);
}

std::string ending_text(const RecordedEnd::Rank& rank) {
  switch (rank.how) {
    case How::finished:
      return fmt::format("it had finished after step {}", rank.last_step);
    case How::error:
      return fmt::format("it ended with an error in {}", place_text(rank.phase, rank.step));
    case How::cut:
      break;
  }
  return fmt::format("its records stop in {} (killed, or still running)",
                     place_text(rank.phase, rank.step));
}

std::string meeting_text(const RecordedEnd& end, const InVain& meeting) {
  const std::string place = place_text(meeting.phase, meeting.step);
  const std::string what =
      meeting.bucket ? fmt::format("the collective of bucket {} in {}", *meeting.bucket, place)
                     : place;
  const std::string patience = meeting.waited_ns > 0
                                   ? " and gave up after " + duration_text(meeting.waited_ns)
                                   : std::string(" for it");
  const std::string waited = ranks_of_text(meeting.waited) + " waited" + patience;
  if (meeting.absent.empty())
    return fmt::format("{} entered {} {} after the first of the others: {}",
                       ranks_of_text(meeting.late), what, duration_text(meeting.late_ns), waited);
  std::string text = fmt::format("{} never entered {}: ", ranks_of_text(meeting.absent), what);
  for (const int64_t rank : meeting.absent)
    text += (meeting.absent.size() > 1 ? fmt::format("of rank {}: ", rank) : std::string()) +
            ending_text(end.ranks[static_cast<size_t>(rank)]) + "; ";
  return text + waited;
}

Json rank_json(const RecordedEnd::Rank& rank, size_t number) {
  return {{"rank", number},
          {"end", to_word(rank.how)},
          {"last_step", rank.last_step},
          {"step", rank.step},
          {"phase", to_word(rank.phase)}};
}

Json meeting_json(const std::optional<InVain>& meeting) {
  if (!meeting) return nullptr;
  return {{"step", meeting->step},
          {"phase", to_word(meeting->phase)},
          {"bucket", or_null(meeting->bucket)},
          {"never_came", meeting->absent},
          {"late", meeting->late},
          {"waited", meeting->waited},
          {"waited_ms", static_cast<double>(meeting->waited_ns) / 1e6},
          {"late_ms", static_cast<double>(meeting->late_ns) / 1e6}};
}

}  // namespace

std::string to_text(const RecordedEnd& end) {
  if (end.kind == RecordedEnd::Kind::whole) return "";
  if (end.meeting) return meeting_text(end, *end.meeting);
  if (end.failed_first)
    return fmt::format(
        "rank {} was the first to end with an error, in {}; nothing shows that it waited for "
        "another",
        *end.failed_first,
        place_text(end.ranks[static_cast<size_t>(*end.failed_first)].phase,
                   end.ranks[static_cast<size_t>(*end.failed_first)].step));
  std::vector<int64_t> cut, finished;
  for (size_t rank = 0; rank < end.ranks.size(); ++rank)
    (end.ranks[rank].how == How::cut ? cut : finished).push_back(static_cast<int64_t>(rank));
  if (cut.empty())
    return fmt::format("ranks finished after different numbers of steps, the first after {}",
                       end.last_whole_step);
  return fmt::format(
      "no end was recorded of {} (killed, or still running); all ranks ended step {}",
      ranks_of_text(cut), end.last_whole_step);
}

const char* to_word(RecordedEnd::Kind kind) {
  switch (kind) {
    case RecordedEnd::Kind::whole:
      return "whole";
    case RecordedEnd::Kind::unfinished:
      return "unfinished";
    case RecordedEnd::Kind::failed:
      return "failed";
  }
  return "";
}

const char* to_word(RecordedEnd::How how) {
  switch (how) {
    case How::finished:
      return "finished";
    case How::error:
      return "error";
    case How::cut:
      return "cut";
  }
  return "";
}

Json as_json(const RecordedEnd& end) {
  Json ranks = Json::array();
  for (size_t rank = 0; rank < end.ranks.size(); ++rank)
    ranks.push_back(rank_json(end.ranks[rank], rank));
  return {{"kind", to_word(end.kind)},
          {"text", to_text(end)},
          {"last_whole_step", end.last_whole_step},
          {"meeting", meeting_json(end.meeting)},
          {"failed_first", or_null(end.failed_first)},
          {"ranks", std::move(ranks)}};
}

Json recorded_end_schema() {
  const Json count = {{"type", "integer"}, {"minimum", 0}};
  const Json ms = {{"type", "number"}, {"minimum", 0}};
  const Json ranks = {{"type", "array"}, {"items", count}};
  const auto object = [](const char* description, Json properties, Json type) {
    Json required = Json::array();
    for (const auto& [key, value] : properties.items()) required.push_back(key);
    return Json{{"description", description},
                {"type", std::move(type)},
                {"additionalProperties", false},
                {"required", std::move(required)},
                {"properties", std::move(properties)}};
  };
  const Json optional = {{"type", {"integer", "null"}}, {"minimum", 0}};
  return object(
      "How the recorded run came to its end, from its records alone",
      {{"kind", {{"enum", {"whole", "unfinished", "failed"}}}},
       {"text", {{"description", "Empty: whole"}, {"type", "string"}}},
       {"last_whole_step", count},
       {"meeting", object("What ranks waited in, in vain; null: not known to have been so",
                          {{"step", count},
                           {"phase", {{"type", "string"}}},
                           {"bucket", optional},
                           {"never_came", ranks},
                           {"late", ranks},
                           {"waited", ranks},
                           {"waited_ms", ms},
                           {"late_ms", ms}},
                          {"object", "null"})},
       {"failed_first", optional},
       {"ranks",
        {{"type", "array"},
         {"items", object("",
                          {{"rank", count},
                           {"end", {{"enum", {"finished", "error", "cut"}}}},
                           {"last_step", count},
                           {"step", count},
                           {"phase", {{"type", "string"}}}},
                          "object")}}}},
      "object");
}

Json as_json(const RecordedAnalysis& analysis) {
  const RunResult& result = analysis.result;
  return with_head({{"exit_code", analysis.exit_code},
                    {"recording", analysis.folder},
                    {"world_size", analysis.world_size},
                    {"end", as_json(analysis.end)},
                    {"metrics", as_json(*result.metrics, analysis.intervals)},
                    {"straggler", result.straggler ? as_json(*result.straggler) : Json(nullptr)}});
}

std::string recorded_analysis_schema() {
  const Json results = Json::parse(result_schema_text());
  const Json& run = results["definitions"]["run"]["properties"];
  Json properties = {{"schema_version", {{"const", 1}}},
                     {"lockstep_version", {{"type", "string"}}},
                     {"commit", {{"type", "string"}}},
                     {"exit_code", {{"type", "integer"}, {"minimum", 0}}},
                     {"recording", {{"description", "The folder, as given"}, {"type", "string"}}},
                     {"world_size", {{"type", "integer"}, {"minimum", 1}}},
                     {"end", recorded_end_schema()},
                     {"metrics", run["metrics"]},
                     {"straggler", run["straggler"]}};
  Json required = Json::array();
  for (const auto& [key, value] : properties.items()) required.push_back(key);
  const Json schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                       {"title", "Result of lockstep analyze of a recording (--json)"},
                       {"type", "object"},
                       {"additionalProperties", false},
                       {"required", std::move(required)},
                       {"properties", std::move(properties)},
                       {"definitions", results["definitions"]}};
  return schema.dump(2) + "\n";
}

namespace {

// As many workers as are interesting to look at; all of them are in --json.
constexpr size_t kShown = 5;

std::string factor(double value) { return fmt::format("{:.4f}", value); }

std::string factor(const std::optional<double>& value) { return value ? factor(*value) : "-"; }

std::string numbered(const char* header, const std::vector<double>& slowdowns, const Style& style) {
  Table table;
  table.column(header, Table::Align::right);
  table.column("slowdown", Table::Align::right);
  for (size_t i = 0; i < slowdowns.size(); ++i)
    table.row({std::to_string(i), factor(slowdowns[i])});
  return table.text(style);
}

std::string workers_table(const PipelineSlowdown& slowdown, const Style& style) {
  Table table;
  for (const char* header : {"worst workers: stage", "data-parallel rank", "slowdown"})
    table.column(header, Table::Align::right);
  for (size_t i = 0; i < std::min(slowdown.workers.size(), std::max(kShown, slowdown.worst)); ++i)
    table.row({std::to_string(slowdown.workers[i].stage),
               std::to_string(slowdown.workers[i].dp_rank), factor(slowdown.workers[i].slowdown)});
  return table.text(style);
}

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.0f} %", std::round(*share * 100) + 0.0) : "nothing";
}

std::string answer(const PipelineSlowdown& slowdown) {
  const auto worst = static_cast<int64_t>(slowdown.worst);
  const auto& first = slowdown.workers.front();
  const std::string who = worst == 1
                              ? fmt::format("the worst worker (stage {}, data-parallel rank {})",
                                            first.stage, first.dp_rank)
                              : fmt::format("the worst {} workers", grouped(worst));
  return fmt::format(
      "slowdown S {}; of the time lost, {} goes with {}, M_W {}, and {} with the "
      "last stage, M_S {}\n",
      factor(slowdown.slowdown), percent(slowdown.by_worst_workers), who,
      factor(slowdown.by_worst_workers), percent(slowdown.by_last_stage),
      factor(slowdown.by_last_stage));
}

}  // namespace

std::string pipeline_text(const PipelineDocument& document, const Style& style) {
  const PipelineSlowdown& slowdown = document.slowdown;
  return fmt::format("{}  {} {}  {} data-parallel {} x {} {}  {} operations\n\n", document.file,
                     grouped(document.steps), plural(document.steps, "step"),
                     grouped(document.dp_ranks), plural(document.dp_ranks, "rank"),
                     grouped(document.stages), plural(document.stages, "stage"),
                     grouped(document.ops)) +
         numbered("stage", slowdown.stages, style) + "\n" +
         numbered("data-parallel rank", slowdown.dp_ranks, style) + "\n" +
         workers_table(slowdown, style) + "\n" +
         fmt::format(
             "a step takes {} ms, {} if all operations of a kind took equally "
             "long\n",
             tenths(slowdown.step_ms), tenths(slowdown.ideal_ms)) +
         answer(slowdown);
}

nlohmann::ordered_json as_json(const PipelineDocument& document) {
  return with_head({{"exit_code", 0},
                    {"file", document.file},
                    {"steps", document.steps},
                    {"ops", document.ops},
                    {"pipeline", as_json(document.slowdown)}});
}

}  // namespace lockstep
