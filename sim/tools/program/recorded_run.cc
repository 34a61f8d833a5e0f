#include "sim/tools/program/recorded_run.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <utility>

#include "sim/tools/program/broken_off.h"
#include "sim/tools/program/judge.h"
#include "sim/tools/program/launch.h"
#include "sim/tools/program/places.h"
#include "sim/tools/program/shards.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// What ranks left of a run that did not end well.
RecordedRun with_broken_off(RecordedRun found, const std::string& folder, int64_t world) {
  for (int64_t rank = 0; rank < world; ++rank) {
    auto read = read_program_rank(fmt::format("{}/rank-{}.jsonl", folder, rank));
    if (read) found.ranks.push_back(std::move(read.value()));
  }
  return found;
}

std::vector<std::string> variables(const ProgramVerification& options, bool in_double) {
  std::vector<std::string> all;
  if (options.seed) all.push_back(fmt::format("LOCKSTEP_PROGRAM_SEED={}", *options.seed));
  if (!in_double) all.emplace_back("LOCKSTEP_PROGRAM_OWN_DTYPES=1");
  if (judges_hook(options)) all.emplace_back("LOCKSTEP_PROGRAM_LOSSY_HOOK=1");
  return all;
}

// What the ranks' first run left, and how many GPUs there are.
void add_of_one_device(const ProgramSession& session, std::vector<std::string>* all) {
  all->push_back(fmt::format("LOCKSTEP_PROGRAM_RANKS={}/{}", session.scratch, session.world));
  if (*session.all_gpus) all->push_back(fmt::format("LOCKSTEP_PROGRAM_ALL_GPUS={}", session.world));
}

ProgramEnd watch(const ProgramLaunch& launch, Signals* signals, RecordedRun* found) {
  // Silence alone is no hang: nobody sees to it that a slow script gets a longer --hang-after.
  const ProgramWatch watched{.limit_s = launch.limit_s, .hang_after_s = launch.limit_s};
  const ProgramRun run = watch_program(launch, watched, 0, signals);
  if (run.end.why.empty() || run.end.signal != 0) return run.end;
  found->failed = judge_run(run, {}, launch, watched);
  found->certain = is_certain(run, *found->failed);
  return run.end;
}

}  // namespace

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

bool has_noted_batches(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error))
    if (file->path().filename().string().starts_with("collated-")) return true;
  return false;
}

bool judges_hook(const ProgramVerification& options) {
  return options.hook.error || options.hook.owed;
}

RecordedRun record_run(const ProgramSession& session, const std::string& folder, const RunOf& run) {
  const ProgramVerification& options = session.options;
  const int64_t world = run.world;
  std::error_code error;
  fs::create_directory(folder, error);
  RecordedRun found;
  found.folder = folder;
  std::vector<std::string> all = variables(options, run.in_double);
  all.insert(all.end(), run.variables.begin(), run.variables.end());
  if (run.watched) all.emplace_back("LOCKSTEP_PROGRAM_FLIGHT=1");
  if (run.world == 1) add_of_one_device(session, &all);
  const auto begin = std::chrono::steady_clock::now();
  const ProgramLaunch launch{.start = options.start,
                             .folder = folder,
                             .agent = program_agent_folder(),
                             .world = world,
                             .scale = run.scale,
                             .limit_s = options.limit_s,
                             .variables = all,
                             .zygotes = session.zygotes};
  const ProgramEnd end =
      run.watched ? watch(launch, session.signals, &found) : run_program(launch, session.signals);
  found.seconds = seconds_since(begin);
  found.why = end.why;
  found.signal = end.signal;
  found.exited = end.exited;
  found.log_tail = end.log_tail;
  if (fs::exists(folder + "/same_rank", error)) {
    found.why = options.start.spawns ? kStartsRanksAgain : kOneRankTwice;
    found.failed.reset();
    return found;
  }
  if (found.exited && has_resumed(folder)) found.why += fmt::format("; {}", kResumedOfRanks);
  const std::string advice = gpu_advice_after(folder);
  if (!found.why.empty()) {
    found.why += end.exited ? advice : "";  // who hangs, or was killed, misses none
    return with_broken_off(std::move(found), folder, world);
  }
  found.ended = true;
  for (int64_t rank = 0; rank < world && found.why.empty(); ++rank) {
    const std::string path = fmt::format("{}/rank-{}.jsonl", folder, rank);
    if (!fs::exists(path, error)) {
      found.why =
          fmt::format("rank {} of {} ran no backward and no optimizer step{}{}{}", rank, world,
                      advice, has_resumed(folder) ? fmt::format("; {}", kResumedOfRanks) : "",
                      agent_advice_after(folder));
      break;
    }
    auto read = read_program_rank(path);
    if (!read)
      found.why = to_text(read.errors()[0]);
    else if (read.value().rank != rank || read.value().world != world)
      found.why = other_world(read.value().world, world);
    else
      found.ranks.push_back(std::move(read.value()));
  }
  join_shards(&found.ranks);
  return found;
}

RecordedRun record_alone(const ProgramSession& session, const std::string& folder, int64_t scale) {
  RecordedRun one = record_run(session, folder, {.world = 1, .scale = scale});
  const bool wants_more = session.options.start.pretends_gpus && !has_resumed(folder) &&
                          one.signal == 0 && !one.why.empty() && (one.exited || one.ended);
  if (!wants_more) return one;
  *session.all_gpus = true;
  RecordedRun other = record_run(session, folder + "-gpus", {.world = 1, .scale = scale});
  if (other.signal != 0 || other.why.empty()) return other;
  *session.all_gpus = false;
  one.why += fmt::format("; with {} GPUs reported, {}", session.world, other.why);
  return one;
}

}  // namespace lockstep
