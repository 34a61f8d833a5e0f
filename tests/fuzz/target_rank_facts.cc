#include <csignal>
#include <nlohmann/json.hpp>

#include "sim/report/document.h"
#include "sim/report/trace/chakra.h"
#include "sim/report/trace/flight_recorder.h"
#include "sim/report/trace/trace.h"
#include "sim/tools/program/group_waits.h"
#include "sim/tools/program/run_asked.h"
#include "sim/tools/program/run_result.h"
#include "tests/fuzz/fuzz.h"

// What the agent leaves of two ranks of `lockstep run -- COMMAND` beside their records, the same of
// both: files one after another, with a line "---" between them.
namespace {

using namespace lockstep;  // NOLINT

constexpr std::array kFiles = {"process.json", "facts.json", "groups.json", "error.json", "stack"};
constexpr int64_t kWorld = 2;

void leave_files(std::string_view text) {
  auto parts = fuzz::parts_of(text, "\n---\n", kFiles.size() + 1);
  parts.resize(kFiles.size() + 1);
  for (size_t i = 0; i < kFiles.size(); ++i)
    for (const char* rank : {"0", "1"})
      fuzz::leave(fuzz::folder() + "/rank-" + rank + "." + kFiles.at(i), parts[i]);
  fuzz::leave(fuzz::folder() + "/children.jsonl", parts.back());
}

void check_processes() {
  const auto process = read_rank_process(fuzz::folder(), 0);
  if (!process) fuzz::check_errors(process.errors());
  const pid_t pid = process.value_or(std::nullopt).value_or(4711);
  fuzz::promised(pid > 1, "a rank is an ordinary process");
  const auto end = read_child_end(fuzz::folder(), pid);
  if (!end) return fuzz::check_errors(end.errors());
  const auto is_signal = [](int number) { return number >= 0 && number <= SIGRTMAX; };
  fuzz::promised(is_signal(end.value().signal) && is_signal(end.value().sent), "signals are some");
}

// Each stands in a call of another group, which it had used before.
RankRecords waiting_rank(int64_t rank) {
  RankRecords made;
  made.rank = static_cast<int32_t>(rank);
  made.world_size = kWorld;
  const auto add = [&](auto kind, int64_t group, uint32_t call) {
    const int64_t time_ns = 1000 + static_cast<int64_t>(made.events.size());
    made.events.push_back({time_ns, call, static_cast<uint16_t>(kind),
                           static_cast<uint16_t>(Phase::backward), 2, static_cast<int32_t>(group),
                           pack_collective(1, 6, 4096)});
  };
  add(EventKind::phase_begin, -1, 0);
  for (const int64_t group : {int64_t{0}, rank}) {
    add(kGroupArrival, group, 1);
    add(kGroupEnd, group, 1);
  }
  add(kGroupArrival, rank, 2);
  return made;
}

// All that is drawn and written of a run with groups.
void draw(const ProgramRun& run) {
  (void)timeline_page({run, {}});
  write_trace({"/dev/null"}, run.outcome);
  const TracedRun traced = read_for_traces(run.outcome);
  for (const RankGroup& group : traced.timeline.groups)
    fuzz::promised(group.name != kGroupOfAll, "a group of some ranks is told from that of all");
  for (size_t rank = 0; rank < traced.ranks(); ++rank) {
    (void)flight_recorder_dump(traced, rank);
    (void)chakra_trace(traced, rank);
  }
}

// `hangs`: until the launcher ended both; else rank 0 ended by itself.
void judge_ranks(bool hangs) {
  const ProgramLaunch launch{{{"train.py"}}, fuzz::folder(), "", kWorld};
  ProgramRun run;
  for (int64_t rank = 0; rank < kWorld; ++rank) {
    ProcessEnd& end = run.outcome.ends.emplace_back();
    end.rank = end.order = rank;
    end.by_launcher = hangs || rank != 0;
    end.past_deadline = hangs;
    end.exit_code = end.by_launcher ? -1 : 1;
    end.signal = end.by_launcher ? SIGKILL : 0;
  }
  run.outcome.failed_ns = 5000;
  read_ranks(launch, 0, &run);
  run.outcome.ranks = {waiting_rank(0), waiting_rank(1)};
  const ProgramRunResult result = judge_run(run, {}, launch, {});
  fuzz::promised(verdict_of(result) != Verdict::pass, "a run that failed does not pass");
  (void)to_text(as_json(result));
  (void)program_run_text(result, false);
  draw(run);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  leave_files(fuzz::text_of(data, size));
  check_processes();
  judge_ranks(true);
  judge_ranks(false);
  return 0;
}
