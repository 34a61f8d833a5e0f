#include "sim/report/trace/trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <ostream>
#include <system_error>

#include "scenarios/base/error.h"
#include "sim/report/document.h"
#include "sim/report/trace/chakra.h"
#include "sim/report/trace/flight_recorder.h"
#include "sim/report/trace/kineto.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

enum class Holds { one_rank, one_rank_or_all };

struct TraceFormat {
  const char* word;
  const char* file;  // of a rank, whose number stands for {}
  Holds holds;
  bool of_calls;  // of collectives: without one it is empty
  void (*write)(std::ostream& out, const TracedRun& run, std::optional<size_t> rank);
};

void write_own(std::ostream& out, const TracedRun& run, std::optional<size_t> rank) {
  write_kineto(out, run, KinetoNames::own, rank);
}
void write_hta(std::ostream& out, const TracedRun& run, std::optional<size_t> rank) {
  write_kineto(out, run, KinetoNames::hta, rank);
}
void write_dump(std::ostream& out, const TracedRun& run, std::optional<size_t> rank) {
  out << flight_recorder_dump(run, rank.value());
}
void write_execution(std::ostream& out, const TracedRun& run, std::optional<size_t> rank) {
  out << chakra_trace(run, rank.value());
}

constexpr std::array kFormats = {
    TraceFormat{"kineto", "rank-{}.json", Holds::one_rank_or_all, false, write_own},
    TraceFormat{"hta", "rank-{}.json", Holds::one_rank_or_all, false, write_hta},
    TraceFormat{"flight_recorder", "_dump_{}", Holds::one_rank, true, write_dump},
    TraceFormat{"chakra", "trace.{}.et", Holds::one_rank, true, write_execution}};

const TraceFormat& format_of(const TraceOptions& options) {
  const auto found = std::find_if(kFormats.begin(), kFormats.end(), [&](const TraceFormat& format) {
    return options.kind == format.word;
  });
  LOCKSTEP_CHECK(found != kFormats.end(), "no such kind of trace: " + options.kind);
  return *found;
}

void write_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  std::error_code error;
  const bool special = fs::exists(path, error) && !fs::is_regular_file(path, error);
  const std::string target = special ? path : fmt::format("{}.{}.unfinished", path, getpid());
  std::ofstream out(target, std::ios::binary);
  if (out) write(out);
  out.close();
  if (!out || (!special && std::rename(target.c_str(), path.c_str()) != 0)) {
    const int number = errno != 0 ? errno : EIO;
    if (!special) std::remove(target.c_str());
    throw std::system_error(number, std::generic_category(), path);
  }
}

InputError trace_refused(const TraceOptions& options, const std::string& why,
                         const std::string& allowed = "") {
  return option_error(fmt::format("--trace {}: {}", options.path, why), allowed);
}

std::optional<InputError> folder_error(const TraceOptions& options) {
  std::error_code error;
  fs::create_directories(options.path, error);
  if (error || access(options.path.c_str(), W_OK) != 0)
    return trace_refused(options, "cannot be written to");
  if (format_of(options).holds == Holds::one_rank && !fs::is_empty(options.path, error))
    return trace_refused(options, "is not empty",
                         "an empty folder, or a path where one can be made");
  return std::nullopt;
}

// What a rank got in a broadcast or scatter, of which it gave nothing, is what the source gave it.
void complete_sizes(std::vector<std::vector<RecordedCall>>* ranks) {
  const auto is_completed = [](const RecordedCall& call) {
    return call.operation == "broadcast" || call.operation == "scatter";
  };
  std::map<std::pair<std::optional<size_t>, uint32_t>, const RecordedCall*> given;
  for (const auto& calls : *ranks)
    for (const RecordedCall& call : calls)
      if (is_completed(call) && call.elements_out) given[{call.group, call.sequence}] = &call;
  for (auto& calls : *ranks)
    for (RecordedCall& call : calls) {
      const auto source = given.find({call.group, call.sequence});
      if (!is_completed(call) || call.elements_out || source == given.end()) continue;
      if (source->second->operation != call.operation) continue;
      call.type = source->second->type;
      call.elements_out = source->second->elements_out;
      if (!call.elements_in) call.elements_in = call.elements_out;
    }
}

}  // namespace

TracedRun read_for_traces(const RunOutcome& outcome) {
  TracedRun run{outcome, timeline_of(outcome), {}};
  const GroupTable groups = groups_of(outcome);
  const size_t ranks = std::min(run.timeline.phases.size(), outcome.ranks.size());
  for (size_t rank = 0; rank < ranks; ++rank)
    run.calls.push_back(recorded_calls(outcome, groups, rank));
  complete_sizes(&run.calls);
  return run;
}

const std::string& group_name(const Timeline& timeline, const std::optional<size_t>& group) {
  static const std::string all = kGroupOfAll;
  return group ? timeline.groups[*group].name : all;
}

std::string group_description(const Timeline& timeline, const std::optional<size_t>& group) {
  if (!group) return kDescriptionOfAll;
  const std::string& given = timeline.groups[*group].description;
  return given.empty() ? "undefined" : given;
}

std::string ranks_text(const Timeline& timeline, const std::optional<size_t>& group) {
  if (group) return fmt::format("[{}]", fmt::join(timeline.groups[*group].ranks, ", "));
  std::vector<int64_t> all(static_cast<size_t>(timeline.world_size));
  std::iota(all.begin(), all.end(), 0);
  return fmt::format("[{}]", fmt::join(all, ", "));
}

std::string backend_of(const Scenario& scenario) {
  const std::string& kind = scenario.communicator.kind;
  if (kind.empty()) return "c10d";  // of a recording
  return kind == "c10d" ? "gloo" : kind;
}

std::vector<std::string> trace_kinds() {
  std::vector<std::string> words;
  for (const TraceFormat& format : kFormats) words.emplace_back(format.word);
  return words;
}

bool is_trace_folder(const std::string& path) {
  std::error_code error;
  return path.ends_with('/') || fs::is_directory(path, error);
}

std::optional<InputError> trace_error(const TraceOptions& options, size_t runs) {
  if (options.path.empty()) return std::nullopt;
  if (is_trace_folder(options.path)) return folder_error(options);
  if (format_of(options).holds == Holds::one_rank)
    return trace_refused(options, fmt::format("{} has a file of each rank", options.kind),
                         "a folder (FOLDER/)");
  if (const auto why = why_not_writable(options.path)) return option_error("--trace " + *why);
  if (runs == 1) return std::nullopt;
  return trace_refused(
      options, fmt::format("a file holds one run, not {}", runs),
      "a folder (FOLDER/), or one run: pin axes with --set or choose with --filter");
}

std::optional<InputError> trace_error(const TraceOptions& options, const RunOutcome& outcome) {
  if (options.path.empty() || !format_of(options).of_calls) return trace_error(options, 1);
  const int64_t world_size = ranks_of(outcome.plan.scenario);
  for (const RankRecords& rank : outcome.ranks)
    if (!recorded_calls(rank, world_size).empty()) return trace_error(options, 1);
  return trace_refused(
      options, fmt::format("no rank came to a collective, of which {} is made", options.kind));
}

void write_trace(const TraceOptions& options, const RunOutcome& outcome, size_t index,
                 size_t runs) {
  const TraceFormat& format = format_of(options);
  const TracedRun run = read_for_traces(outcome);
  if (!is_trace_folder(options.path))
    return write_file(options.path,
                      [&](std::ostream& out) { format.write(out, run, std::nullopt); });
  const std::string folder =
      runs == 1 ? options.path : fmt::format("{}/{:04}", options.path, index + 1);
  fs::create_directories(folder);
  for (size_t rank = 0; rank < run.ranks(); ++rank)
    if (run.is_known(rank) || !format.of_calls)
      write_file(fmt::format("{}/{}", folder, fmt::format(fmt::runtime(format.file), rank)),
                 [&](std::ostream& out) { format.write(out, run, rank); });
}

}  // namespace lockstep
