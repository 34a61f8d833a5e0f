#include "sim/tools/program/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <utility>

#include "sim/judge/rank_view.h"
#include "sim/tools/program/broken_off.h"
#include "sim/tools/program/drill_cause.h"
#include "sim/tools/program/drill_runs.h"
#include "sim/tools/program/judge_pool.h"
#include "sim/tools/program/launch.h"
#include "sim/tools/program/places.h"
#include "sim/tools/program/shards.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Is run once more without being asked; longer ones where no cause is known.
constexpr double kQuickPairSeconds = 10, kUnknownPairSeconds = 60;

struct Recorded {
  std::vector<ProgramRank> ranks;
  std::string why;      // there is nothing to judge
  bool exited = false;  // the reason is an exit code
  bool ended = false;   // by itself, whatever it left
  std::vector<std::string> log_tail;
  int signal = 0;
  double seconds = 0;
  std::string folder;
  std::optional<ProgramRunResult> failed;  // of a run that was watched: what `run` says of it
  bool certain = false;
};

// What one run is of.
struct RunOf {
  int64_t world = 1, scale = 1;
  bool in_double = true;
  std::vector<std::string> variables = {};
  bool watched = false;  // as `run` watches: who failed, if it does
};

// What ranks left of a run that did not end well.
Recorded with_broken_off(Recorded found, const std::string& folder, int64_t world) {
  for (int64_t rank = 0; rank < world; ++rank) {
    auto read = read_program_rank(fmt::format("{}/rank-{}.jsonl", folder, rank));
    if (read) found.ranks.push_back(std::move(read.value()));
  }
  return found;
}

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

using Ranks = std::vector<ProgramRank>;

// What the runs of one verdict share.
struct Session {
  const ProgramVerification& options;
  std::string scratch;
  ProgramZygotes* zygotes;  // or none
  Signals* signals;
  bool* all_gpus;  // is one device told of as many GPUs as ranks have, since it ended with one?
};

bool judges_hook(const ProgramVerification& options) {
  return options.hook.error || options.hook.owed;
}

std::vector<std::string> variables(const ProgramVerification& options, bool in_double) {
  std::vector<std::string> all;
  if (options.pretends_gpus) all.emplace_back("LOCKSTEP_PROGRAM_PRETEND_GPUS=1");
  if (options.seed) all.push_back(fmt::format("LOCKSTEP_PROGRAM_SEED={}", *options.seed));
  if (!in_double) all.emplace_back("LOCKSTEP_PROGRAM_OWN_DTYPES=1");
  if (judges_hook(options)) all.emplace_back("LOCKSTEP_PROGRAM_LOSSY_HOOK=1");
  return all;
}

// What the ranks' first run left, and how many GPUs there are.
void add_of_one_device(const Session& session, int64_t ranks, std::vector<std::string>* all) {
  all->push_back(fmt::format("LOCKSTEP_PROGRAM_RANKS={}/{}", session.scratch, ranks));
  if (*session.all_gpus) all->emplace_back("LOCKSTEP_PROGRAM_ALL_GPUS=1");
}

ProgramEnd watch(const ProgramLaunch& launch, Signals* signals, Recorded* found) {
  // Silence alone is no hang: nobody sees to it that a slow script gets a longer --hang-after.
  const ProgramWatch watched{.limit_s = launch.limit_s, .hang_after_s = launch.limit_s};
  const ProgramRun run = watch_program(launch, watched, 0, signals);
  if (run.end.why.empty() || run.end.signal != 0) return run.end;
  found->failed = judge_run(run, {}, launch, watched);
  found->certain = is_certain(run, *found->failed);
  return run.end;
}

Recorded record(const Session& session, const std::string& folder, const RunOf& run) {
  const ProgramVerification& options = session.options;
  const int64_t world = run.world;
  std::error_code error;
  fs::create_directory(folder, error);
  Recorded found;
  found.folder = folder;
  std::vector<std::string> all = variables(options, run.in_double);
  all.insert(all.end(), run.variables.begin(), run.variables.end());
  if (run.watched) all.emplace_back("LOCKSTEP_PROGRAM_FLIGHT=1");
  if (run.scale > 1) add_of_one_device(session, run.scale, &all);
  const Clock::time_point begin = Clock::now();
  const ProgramLaunch launch{.command = options.command,
                             .folder = folder,
                             .agent = program_agent_folder(),
                             .world = world,
                             .scale = run.scale,
                             .spawns = options.spawns,
                             .limit_s = options.limit_s,
                             .variables = all,
                             .zygotes = session.zygotes,
                             .directory = options.directory};
  const ProgramEnd end =
      run.watched ? watch(launch, session.signals, &found) : run_program(launch, session.signals);
  found.seconds = seconds_since(begin);
  found.why = end.why;
  found.signal = end.signal;
  found.exited = end.exited;
  found.log_tail = end.log_tail;
  if (fs::exists(folder + "/same_rank", error)) {
    found.why = options.spawns ? kStartsRanksAgain : kOneRankTwice;
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
          fmt::format("rank {} of {} ran no backward and no optimizer step{}{}", rank, world,
                      advice, has_resumed(folder) ? fmt::format("; {}", kResumedOfRanks) : "");
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

// The first run of one device. Some scripts want more than one GPU.
Recorded record_alone(const Session& session, const std::string& folder, int64_t world) {
  Recorded one = record(session, folder, {.world = 1, .scale = world});
  const bool wants_more = session.options.pretends_gpus && !has_resumed(folder) &&
                          one.signal == 0 && !one.why.empty() && (one.exited || one.ended);
  if (!wants_more) return one;
  *session.all_gpus = true;
  Recorded other = record(session, folder + "-gpus", {.world = 1, .scale = world});
  if (other.signal != 0 || other.why.empty()) return other;
  *session.all_gpus = false;
  one.why += fmt::format("; told of {} GPUs, {}", world, other.why);
  return one;
}

bool buffers_differ(const std::vector<ProgramRank>& ranks) {
  for (const ProgramRank& rank : ranks)
    for (size_t i = 0; i < std::min(rank.steps.size(), ranks[0].steps.size()); ++i)
      if (rank.steps[i].buffer_hash != ranks[0].steps[i].buffer_hash) return true;
  return false;
}

// The lanes that need the ranks alone.
void judge_ranks(const ProgramVerification& options, const Recorded& several,
                 const std::string& folder, ProgramWorld* found) {
  found->lanes.push_back({ProgramLaneKind::replica, judge_replicas(several.ranks),
                          replica_control_fails(several.ranks)});
  found->replay = replay_program(folder, found->world_size);
  if (found->replay.finding)
    found->lanes.push_back(
        {ProgramLaneKind::replay, *found->replay.finding, found->replay.control_failed});
  if (judges_hook(options))
    found->lanes.push_back({ProgramLaneKind::hook, judge_comm_hook(several.ranks, options.hook),
                            comm_hook_control_fails(several.ranks, options.hook),
                            without_last_rank(several.ranks[0])});
  found->buffers_differ = buffers_differ(several.ranks);
  found->dropout_off = several.ranks[0].dropout;
  found->on_cpu = several.ranks[0].on_cpu;
  found->never_updated = several.ranks[0].never_updated;
  found->compile_off = several.ranks[0].compile_off;
}

// What the ranks' run says of its failure, in the words of `run`, is the verdict where it is
// certain. Its signal, where one came.
int judge_failed(const Session& session, const Recorded& several, bool in_double,
                 ProgramWorld* found) {
  if (!several.failed) return 0;
  const ProgramRunResult& failed = *several.failed;
  if (const std::string own = in_own_gather(several.folder, found->world_size); !own.empty()) {
    found->not_run += own;
    return 0;
  }
  if (!several.certain) {
    const bool waited = failed.failure && !several.exited;
    if (waited) found->not_run += "; " + failed.failure->message;
    if (!failed.places.empty()) found->not_run += "; ranks were at work: " + failed.places;
    if (!several.exited && !failed.why.empty() && failed.why != several.why &&
        failed.why.find("--limit") == std::string::npos)
      found->not_run += "; " + failed.why;
    return 0;
  }
  if (ends_by_itself(failed)) {
    const std::string folder = fmt::format("{}/{}-alone", session.scratch, found->world_size);
    const Recorded one = record(
        session, folder, {.scale = found->world_size, .in_double = in_double, .watched = true});
    if (one.signal != 0) return one.signal;
    if (one.failed && ends_alike(failed, *one.failed)) {
      found->not_run += "; so does one device";
      return 0;
    }
  }
  found->log_tail.clear();
  found->failed = failed;
  return 0;
}

// Of a program that ends in double and in its own dtypes by something else: that is its own.
void take_other_reason(const Recorded& in_double, const Recorded& own, ProgramWorld* found) {
  if (in_double.failed && own.failed && share_an_error(*in_double.failed, *own.failed)) return;
  found->not_run = fmt::format("in its own dtypes, {}; in double, {}", own.why, in_double.why);
  found->log_tail = own.log_tail;
}

// A program that checks its dtypes, or computes what double cannot: its ranks are judged as they
// are. Its signal, where one came.
int judge_own_dtypes(const Session& session, const Recorded& in_double, ProgramWorld* found) {
  found->log_tail = in_double.log_tail;
  if (!in_double.exited) return judge_failed(session, in_double, true, found);
  const std::string folder = fmt::format("{}/{}-own", session.scratch, found->world_size);
  const Recorded own =
      record(session, folder, {.world = found->world_size, .in_double = false, .watched = true});
  if (own.signal != 0) return own.signal;
  if (!own.why.empty()) {
    take_other_reason(in_double, own, found);
    return judge_failed(session, own, false, found);
  }
  found->not_run =
      "it runs in its own dtypes alone, which lane float64 cannot compare; in double, " +
      in_double.why;
  judge_ranks(session.options, own, folder, found);
  return 0;
}

// The pair of runs that lane float64 was judged by, and how to run it once more.
struct Pair {
  bool handed = false;                          // one device was given the ranks' data,
  std::vector<std::string> one_variables = {};  // in this way
  // What only each rank's own gradients can prove, where the verdict is inconclusive without them.
  std::optional<ProgramFinding> suspected = std::nullopt;
  double seconds = 0;
};

bool is_drilled(const ProgramVerification& options, const Pair& pair, const ProgramFinding& found) {
  if (found.step == 0 || found.other_data || options.never_drills) return false;
  for (const ProgramCause cause : {ProgramCause::same_samples, ProgramCause::loader_state_lost,
                                   ProgramCause::update_on_one_rank})
    if (found.cause == cause) return false;  // there is no operator to compare, or none is wrong
  const double most =
      found.cause == ProgramCause::unknown ? kUnknownPairSeconds : kQuickPairSeconds;
  if (found.verdict == Verdict::fail) return options.drills || pair.seconds <= most;
  return options.drills && found.verdict == Verdict::inconclusive && !pair.handed;
}

// Of two ranks that begin a step with other weights its gradients tell nothing more.
bool begins_apart(ProgramCause cause) {
  return cause == ProgramCause::state_on_one_rank || cause == ProgramCause::different_start ||
         cause == ProgramCause::changed_between_steps;
}

// Ranks that have parted leave one device as well, and not by another mistake: neither where no
// other cause is known, nor in the gradients of weights that were others already.
void take_cause_of_replicas(const std::vector<ProgramLane>& lanes, ProgramFinding* found) {
  const ProgramFinding& replicas = lanes[0].finding;
  const bool later = found->verdict == Verdict::fail &&
                     (replicas.step < found->step || begins_apart(replicas.cause)) &&
                     found->entry.starts_with("gradient of ");
  if ((found->cause != ProgramCause::unknown && !later) || replicas.verdict != Verdict::fail ||
      replicas.step > found->step || found->cause == replicas.cause)
    return;
  found->cause = replicas.cause;
  found->words += fmt::format("; ranks differ since step {}", replicas.step);
}

// The pair once more, of which the step is recorded operator by operator.
struct DrilledPair {
  Recorded ranks, one;
  std::string folder, one_folder;
};

// As far as the first run that does not end well.
DrilledPair run_drilled(const Session& session, const Pair& pair, int64_t world, int64_t step) {
  DrilledPair runs;
  runs.folder = fmt::format("{}/{}-drill", session.scratch, world);
  runs.one_folder = runs.folder + "-one";
  const std::string data = runs.folder + "-data";
  std::error_code error;
  fs::create_directory(data, error);
  std::vector<std::string> all = {fmt::format("LOCKSTEP_PROGRAM_DRILL={}", step)};
  std::vector<std::string> alone = all;
  if (pair.handed) {
    all.push_back("LOCKSTEP_PROGRAM_KEEP_DATA=" + data);
    alone.push_back("LOCKSTEP_PROGRAM_HANDED=" + data);
  }
  alone.insert(alone.end(), pair.one_variables.begin(), pair.one_variables.end());
  runs.ranks = record(session, runs.folder, {.world = world, .variables = all});
  if (runs.ranks.signal != 0 || !runs.ranks.why.empty()) return runs;
  runs.one = record(session, runs.one_folder, {.world = 1, .scale = world, .variables = alone});
  return runs;
}

// Of rank 0; empty: it was not reached.
ProgramStep step_of(const DrilledPair& runs, int64_t step) {
  if (runs.ranks.ranks.empty() || step > std::ssize(runs.ranks.ranks[0].steps)) return {};
  return runs.ranks.ranks[0].steps[static_cast<size_t>(step - 1)];
}

// Runs the pair once more, its first wrong step recorded operator by operator. A signal, where one
// came; `found` is left without a drill where none is wanted.
int drill(const Session& session, const Pair& pair, ProgramWorld* found) {
  const ProgramFinding wrong = pair.suspected.value_or(found->lanes.back().finding);
  if (!is_drilled(session.options, pair, wrong)) return 0;
  const DrilledPair runs = run_drilled(session, pair, found->world_size, wrong.step);
  DrillFinding drilled;
  drilled.step = wrong.step;
  drilled.words = runs.ranks.why.empty() ? runs.one.why : runs.ranks.why;
  const int signal = runs.ranks.signal != 0 ? runs.ranks.signal : runs.one.signal;
  if (signal == 0 && drilled.words.empty()) {
    const ProgramFinding again = judge_one_device(runs.ranks.ranks, runs.one.ranks[0]);
    if (again.step == wrong.step && again.entry == wrong.entry)
      drilled =
          drill_runs(runs.ranks.ranks, runs.folder, runs.one.ranks[0], runs.one_folder, wrong.step);
    else
      drilled.words = "run once more, it did not fail in the same place";
  }
  if (pair.suspected && !is_proven(drilled, runs.ranks.ranks)) return signal;
  found->handed |= pair.suspected.has_value();
  found->lanes.back().finding = with_cause(drilled, step_of(runs, wrong.step), wrong);
  found->drill = std::move(drilled);
  return signal;
}

// Is it perhaps a batch size that the script is given by an option, and one device keeps?
bool may_be_of_option(const ProgramFinding& found) {
  return found.written_batch ||
         (found.verdict == Verdict::fail &&
          (found.cause == ProgramCause::lr_scaled || found.cause == ProgramCause::summed_loss));
}

// One device once more, with batch sizes of options as large as those of all ranks: where it agrees
// then, ranks do what one device does whose user asks for that batch. Its signal, where one came.
int judge_with_scaled_options(const Session& session, const Ranks& ranks, const std::string& folder,
                              std::vector<std::string> variables,
                              const std::function<ProgramFinding(const ProgramRank&)>& judge,
                              ProgramWorld* found, ProgramLane* lane) {
  if (!may_be_of_option(lane->finding)) return 0;
  variables.emplace_back("LOCKSTEP_PROGRAM_SCALED_OPTIONS=1");
  const Recorded one = record(
      session, folder, {.world = 1, .scale = found->world_size, .variables = std::move(variables)});
  if (one.signal != 0 || !one.why.empty()) return one.signal;
  ProgramFinding with = judge(one.ranks[0]);
  if (with.verdict != Verdict::pass) return 0;
  lane->finding = std::move(with);
  lane->control_failed = one_device_control_fails(ranks, one.ranks[0]);
  found->scaled_options = true;
  return 0;
}

// One device has drawn other weights or batches than the ranks, as in programs without a seed, or
// with one of each rank's own: once more, with those of the ranks. Its signal, where one came.
int judge_with_ranks_data(const Session& session, const Recorded& alone, ProgramWorld* found,
                          ProgramLane* lane, Pair* pair) {
  const int64_t world = found->world_size;
  const std::string folder = fmt::format("{}/{}-kept", session.scratch, world);
  const std::string data = folder + "-data";
  std::error_code error;
  fs::create_directory(data, error);
  const Recorded ranks = record(
      session, folder, {.world = world, .variables = {"LOCKSTEP_PROGRAM_KEEP_DATA=" + data}});
  if (ranks.signal != 0 || !ranks.why.empty()) return ranks.signal;
  if (judge_replicas(ranks.ranks).verdict != Verdict::pass) return 0;
  const HandedWay way = handed_way(ranks.ranks[0], alone.ranks[0], world);
  if (way == HandedWay::none) return 0;
  std::vector<std::string>& handed = pair->one_variables;
  // Ranks that cut a batch by hand make as many steps as one device that leaves it as it is.
  if (ranks.ranks[0].steps.size() != alone.ranks[0].steps.size())
    handed.emplace_back("LOCKSTEP_PROGRAM_OWN_BATCHES=1");
  if (way == HandedWay::in_turn) handed.emplace_back("LOCKSTEP_PROGRAM_IN_TURN=1");
  std::vector<std::string> variables = handed;
  variables.push_back("LOCKSTEP_PROGRAM_HANDED=" + data);
  const Recorded one =
      record(session, folder + "-one", {.world = 1, .scale = world, .variables = variables});
  pair->handed = true;
  pair->seconds = ranks.seconds + one.seconds;
  if (!one.why.empty())
    lane->finding.words += "; with the ranks' data handed to it, one device broke off: " + one.why;
  if (one.signal != 0 || !one.why.empty()) return one.signal;
  const ProgramFinding before = lane->finding;
  lane->finding = judge_handed(ranks.ranks, one.ranks[0], before);
  lane->control_failed = one_device_control_fails(ranks.ranks, one.ranks[0]);
  const int signal = judge_with_scaled_options(
      session, ranks.ranks, folder + "-scaled", variables,
      [&](const ProgramRank& other) { return judge_handed(ranks.ranks, other, before); }, found,
      lane);
  for (const auto judge : {judge_items, judge_pool, judge_first_weights})
    if (lane->finding.verdict == Verdict::pass)
      if (ProgramFinding other = judge(ranks.ranks, alone.ranks[0]); other.verdict != Verdict::pass)
        lane->finding = std::move(other);
  found->handed = !lane->finding.other_data;
  found->compared = one.ranks[0].compared;
  pair->suspected = suspected_of_handed(ranks.ranks, one.ranks[0]);
  return signal;
}

// Several ranks, then one device. Its signal, where one came.
int judge_both(const Session& session, ProgramWorld* found) {
  const int64_t world = found->world_size;
  const std::string folder = fmt::format("{}/{}", session.scratch, world);
  const Recorded several = record(session, folder, {.world = world, .watched = true});
  found->not_run = several.why;
  if (several.signal != 0) return several.signal;
  if (!several.why.empty()) {
    const ProgramFinding cause = judge_broken_off(several.ranks);
    if (cause.cause == ProgramCause::none) return judge_own_dtypes(session, several, found);
    found->log_tail = several.log_tail;
    found->lanes.push_back({ProgramLaneKind::replica, cause, false});
    return 0;
  }
  judge_ranks(session.options, several, folder, found);
  const Recorded one = record_alone(session, folder + "-one", world);
  found->log_tail = one.log_tail;
  if (!one.why.empty()) found->not_run = "on one device, " + one.why;
  if (one.signal != 0 || !one.why.empty()) return one.signal;
  ProgramLane lane = {ProgramLaneKind::float64, judge_one_device(several.ranks, one.ranks[0]),
                      one_device_control_fails(several.ranks, one.ranks[0])};
  if (const ProgramFinding& replicas = found->lanes[0].finding;
      lane.finding.other_data && replicas.cause == ProgramCause::changed_between_steps &&
      replicas.step == 1)
    lane.finding = inconclusive(
        "ranks make their first step from weights that differ, as lane replica says, and one "
        "device has one set of them");
  Pair pair{.seconds = several.seconds + one.seconds};
  const int signal =
      lane.finding.other_data
          ? judge_with_ranks_data(session, one, found, &lane, &pair)
          : judge_with_scaled_options(
                session, several.ranks, folder + "-scaled", {},
                [&](const ProgramRank& other) { return judge_one_device(several.ranks, other); },
                found, &lane);
  take_cause_of_replicas(found->lanes, &lane.finding);
  take_cause_of_items(several.ranks, one.ranks[0], &lane.finding);
  if (lane.finding.verdict == Verdict::fail && !judges_hook(session.options))
    found->comm_hook = several.ranks[0].comm_hook;
  found->lanes.push_back(lane);
  return signal != 0 ? signal : drill(session, pair, found);
}

}  // namespace

std::unique_ptr<ProgramZygotes> make_zygotes(const ProgramVerification& asked,
                                             const std::string& scratch) {
  if (asked.fresh_processes || asked.spawns) return nullptr;
  return std::make_unique<ProgramZygotes>(asked.command, program_agent_folder(), scratch,
                                          asked.directory);
}

int judge_world(const ProgramVerification& asked, const std::string& scratch,
                ProgramZygotes* zygotes, Signals* signals, ProgramWorld* found) {
  const Clock::time_point begin = Clock::now();
  const int signal = judge_both({asked, scratch, zygotes, signals, &found->all_gpus}, found);
  found->duration_s = seconds_since(begin);
  return signal;
}

}  // namespace lockstep
