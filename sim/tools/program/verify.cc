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
#include "sim/tools/program/judge_causes.h"
#include "sim/tools/program/judge_inputs.h"
#include "sim/tools/program/judge_parts.h"
#include "sim/tools/program/judge_pool.h"
#include "sim/tools/program/places.h"
#include "sim/tools/program/recorded_run.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Is run once more without being asked; longer ones where no cause is known.
constexpr double kQuickPairSeconds = 30, kUnknownPairSeconds = 60;

using Ranks = std::vector<ProgramRank>;

bool buffers_differ(const std::vector<ProgramRank>& ranks) {
  for (const ProgramRank& rank : ranks)
    for (size_t i = 0; i < std::min(rank.steps.size(), ranks[0].steps.size()); ++i)
      if (rank.steps[i].buffer_hash != ranks[0].steps[i].buffer_hash) return true;
  return false;
}

// The lanes that need the ranks alone.
void judge_ranks(const ProgramVerification& options, const RecordedRun& several,
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
int judge_failed(const ProgramSession& session, const RecordedRun& several, bool in_double,
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
    const RecordedRun one = record_run(
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
void take_other_reason(const RecordedRun& in_double, const RecordedRun& own, ProgramWorld* found) {
  if (in_double.failed && own.failed && share_an_error(*in_double.failed, *own.failed)) return;
  found->not_run = fmt::format("in its own dtypes, {}; in double, {}", own.why, in_double.why);
  found->log_tail = own.log_tail;
}

// Why ranks that end well in their own dtypes did not in double. One that leaves the others without
// an error misses no dtype: the numbers had it decide otherwise than they.
std::string only_in_own_dtypes(const RecordedRun& in_double) {
  if (in_double.certain && !ends_by_itself(*in_double.failed))
    return fmt::format(
        "in double, {}; in its own dtypes, which lane float64 cannot compare, "
        "ranks stay together: each may decide by its own numbers when to stop",
        in_double.failed->failure->message);
  return "it runs only in its own dtypes, which lane float64 cannot compare; in double, " +
         in_double.why;
}

// A program that checks its dtypes, or computes what double cannot: its ranks are judged as they
// are. Its signal, where one came.
int judge_own_dtypes(const ProgramSession& session, const RecordedRun& in_double,
                     ProgramWorld* found) {
  found->log_tail = in_double.log_tail;
  if (!in_double.exited) return judge_failed(session, in_double, true, found);
  const std::string folder = fmt::format("{}/{}-own", session.scratch, found->world_size);
  const RecordedRun own = record_run(
      session, folder, {.world = found->world_size, .in_double = false, .watched = true});
  if (own.signal != 0) return own.signal;
  if (!own.why.empty()) {
    take_other_reason(in_double, own, found);
    return judge_failed(session, own, false, found);
  }
  found->not_run = only_in_own_dtypes(in_double);
  judge_ranks(session.options, own, folder, found);
  return 0;
}

// The pair of runs that lane float64 was judged by, and how to run it once more.
struct Pair {
  bool handed = false;                          // one device was given the ranks' data,
  std::vector<std::string> one_variables = {};  // in this way
  std::vector<std::string> variables = {};      // of the ranks
  // What only each rank's own gradients can prove, where the verdict is inconclusive without them.
  std::optional<ProgramFinding> suspected = std::nullopt;
  double seconds = 0;
};

bool is_drilled(const ProgramVerification& options, const Pair& pair, const ProgramFinding& found) {
  if (found.step == 0 || found.other_data || options.never_drills) return false;
  if (options.local_batch_norm) return false;  // one device normalizes by other operators
  for (const ProgramCause cause :
       {ProgramCause::same_samples, ProgramCause::loader_state_lost,
        ProgramCause::update_on_one_rank, ProgramCause::unmasked_padding})
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

// What ranks hold a part of each is told by one device, which holds all of it: they are no copies
// that could part, nor that a sum is due of.
void excuse_parts(const Ranks& ranks, const ProgramRank& one, ProgramFinding* replicas,
                  ProgramFinding* of_one) {
  if (replicas->verdict != Verdict::fail || replicas->step < 1) return;
  const std::string why =
      parts_that_one_device_has(ranks, one, static_cast<size_t>(replicas->step - 1));
  if (why.empty()) return;
  *replicas = inconclusive(why, replicas->step);
  if (of_one->verdict == Verdict::fail &&
      (of_one->cause == ProgramCause::outside_ddp || of_one->cause == ProgramCause::not_reduced))
    *of_one = inconclusive(why, of_one->step);
}

// The pair once more, of which the step is recorded operator by operator.
struct DrilledPair {
  RecordedRun ranks, one;
  std::string folder, one_folder;
};

// As far as the first run that does not end well.
DrilledPair run_drilled(const ProgramSession& session, const Pair& pair, int64_t world,
                        int64_t step) {
  DrilledPair runs;
  runs.folder = fmt::format("{}/{}-drill", session.scratch, world);
  runs.one_folder = runs.folder + "-one";
  const std::string data = runs.folder + "-data";
  std::error_code error;
  fs::create_directory(data, error);
  std::vector<std::string> all = {fmt::format("LOCKSTEP_PROGRAM_DRILL={}", step)};
  std::vector<std::string> alone = all;
  all.insert(all.end(), pair.variables.begin(), pair.variables.end());
  if (pair.handed) {
    all.push_back("LOCKSTEP_PROGRAM_KEEP_DATA=" + data);
    alone.push_back("LOCKSTEP_PROGRAM_HANDED=" + data);
  }
  alone.insert(alone.end(), pair.one_variables.begin(), pair.one_variables.end());
  runs.ranks = record_run(session, runs.folder, {.world = world, .variables = all});
  if (runs.ranks.signal != 0 || !runs.ranks.why.empty()) return runs;
  runs.one = record_run(session, runs.one_folder, {.world = 1, .scale = world, .variables = alone});
  return runs;
}

// Of rank 0; empty: it was not reached.
ProgramStep step_of(const DrilledPair& runs, int64_t step) {
  if (runs.ranks.ranks.empty() || step > std::ssize(runs.ranks.ranks[0].steps)) return {};
  return runs.ranks.ranks[0].steps[static_cast<size_t>(step - 1)];
}

// Runs the pair once more, its first wrong step recorded operator by operator. A signal, where one
// came; `found` is left without a drill where none is wanted.
int drill(const ProgramSession& session, const Pair& pair, ProgramWorld* found) {
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
int judge_with_scaled_options(const ProgramSession& session, const Ranks& ranks,
                              const std::string& folder, std::vector<std::string> variables,
                              const std::function<ProgramFinding(const ProgramRank&)>& judge,
                              ProgramWorld* found, ProgramLane* lane) {
  if (!may_be_of_option(lane->finding)) return 0;
  variables.emplace_back("LOCKSTEP_PROGRAM_SCALED_OPTIONS=1");
  const RecordedRun one = record_run(
      session, folder, {.world = 1, .scale = found->batches, .variables = std::move(variables)});
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
int judge_with_ranks_data(const ProgramSession& session, const RecordedRun& alone,
                          ProgramWorld* found, ProgramLane* lane, Pair* pair) {
  const int64_t world = found->world_size;
  const std::string folder = fmt::format("{}/{}-kept", session.scratch, world);
  const std::string data = folder + "-data";
  std::error_code error;
  fs::create_directory(data, error);
  const RecordedRun ranks = record_run(
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
  if (found->local_batch_norm) handed.emplace_back("LOCKSTEP_PROGRAM_LOCAL_BATCH_NORM=1");
  std::vector<std::string> variables = handed;
  variables.push_back("LOCKSTEP_PROGRAM_HANDED=" + data);
  RecordedRun one =
      record_run(session, folder + "-one", {.world = 1, .scale = world, .variables = variables});
  pair->handed = true;
  pair->seconds = ranks.seconds + one.seconds;
  if (!one.why.empty())
    lane->finding.words += "; with the ranks' data given to it, one device broke off: " + one.why;
  if (one.signal != 0 || !one.why.empty()) return one.signal;
  if (found->local_batch_norm) one.ranks[0].batch_norms = 0;  // none that ranks have not as well
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

// `ranks`: one of each model. What layers of torch take a rank's input for, all of a batch or a
// part of it, is in their layouts: a difference that no known mistake explains may be no mistake.
ProgramFinding judge_models(const Ranks& ranks, int64_t world, const ProgramRank& one) {
  ProgramFinding found = judge_one_device(ranks, one);
  if (std::ssize(ranks) == world || found.verdict != Verdict::fail ||
      found.cause != ProgramCause::unknown)
    return found;
  return excused(found,
                 "tensor parallel: each rank's input may be a part of the batch, depending on its "
                 "layouts, and one device has one rank's input");
}

// A collate function pads to the longest of its samples: one device, whose batches are larger, pads
// more than ranks do. These run once more, with its padding; if they agree with it then, padding is
// what they differed by. `ranks`: those that are compared from there on. Its signal, where one
// came.
int judge_with_one_padding(const ProgramSession& session, const RecordedRun& one, Ranks* ranks,
                           ProgramLane* lane, Pair* pair) {
  if (lane->finding.step < 1 || !has_noted_batches(one.folder)) return 0;
  const std::vector<std::string> variables = {"LOCKSTEP_PROGRAM_COLLATED=" + one.folder};
  const RecordedRun padded =
      record_run(session, fmt::format("{}/{}-padded", session.scratch, ranks->size()),
                 {.world = std::ssize(*ranks), .variables = variables});
  if (padded.signal != 0 || !padded.why.empty()) return padded.signal;
  const ProgramFinding with = judge_models(padded.ranks, std::ssize(*ranks), one.ranks[0]);
  if (with.other_data) return 0;
  if (judge_steps(padded.ranks, one.ranks[0]).verdict == Verdict::pass) {
    lane->finding = padding_failure(*ranks, one.ranks[0], lane->finding);
    return 0;
  }
  lane->finding = with;
  lane->finding.words += "; all samples are padded as one device pads them";
  lane->control_failed = one_device_control_fails(padded.ranks, one.ranks[0]);
  *ranks = padded.ranks;
  pair->variables = variables;
  return 0;
}

// Where BatchNorm normalizes each rank's own batch on purpose, one device that normalizes all of it
// tells nothing but whose the samples are: it is handed those of the ranks, and normalizes them
// apart.
void take_local_batch_norm(const ProgramVerification& asked, const ProgramRank& one,
                           ProgramWorld* found, ProgramLane* lane) {
  if (!asked.local_batch_norm) return;
  found->no_batch_norm = one.batch_norms == 0;
  const bool of_samples = lane->finding.cause == ProgramCause::same_samples ||
                          lane->finding.cause == ProgramCause::padded_samples;
  if (found->no_batch_norm || of_samples) return;
  if (found->batches < found->world_size) {
    found->not_run =
        "--local-batch-norm: ranks hold one model together, and their batches are not given to one "
        "device";
    return;
  }
  found->local_batch_norm = true;
  lane->finding = inconclusive("one device that normalizes all ranks' samples together differs");
  lane->finding.other_data = true;
}

// What gradients that are so many times those of one device are called, in the step that is wrong.
ProgramCause cause_of_factor(const Ranks& ranks, const ProgramRank& one,
                             const ProgramFinding& wrong, double factor) {
  const auto step = static_cast<size_t>(wrong.step - 1);
  const std::vector<std::string>& names = ranks[0].steps[step].names;
  const auto named = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return wrong.entry.ends_with(" " + name);
  });
  const auto i = named == names.end() ? 0 : static_cast<size_t>(named - names.begin());
  return factor_cause(ranks, one, step, i, factor);
}

// What an update that is not linear leaves of a factor tells nothing of it: one device once more,
// whose gradients are multiplied by it. Its signal, where one came.
int judge_by_factors(const ProgramSession& session, const Ranks& ranks, const Pair& pair,
                     ProgramWorld* found) {
  ProgramFinding& wrong = found->lanes.back().finding;
  const bool open =
      wrong.cause == ProgramCause::unknown || wrong.cause == ProgramCause::other_update;
  if (!found->drill || wrong.verdict != Verdict::fail || !open || pair.handed) return 0;
  const DrillStage stage = found->drill->stage;
  if (stage != DrillStage::reduction && stage != DrillStage::update) return 0;
  const auto world = static_cast<double>(ranks.size());
  for (const double factor : {world, 1 / world}) {
    const RecordedRun one =
        record_run(session, fmt::format("{}/{}-times-{}", session.scratch, ranks.size(), factor),
                   {.world = 1,
                    .scale = found->batches,
                    .variables = {fmt::format("LOCKSTEP_PROGRAM_TIMES={}", factor)}});
    if (one.signal != 0) return one.signal;
    if (!one.why.empty() || judge_one_device(ranks, one.ranks[0]).verdict != Verdict::pass)
      continue;
    wrong.cause = cause_of_factor(ranks, one.ranks[0], wrong, factor);
    wrong.words += fmt::format(
        "; all steps agree with one device that multiplies its gradients by {:.4g}", factor);
    return 0;
  }
  return 0;
}

// Several ranks, then one device. Its signal, where one came.
int judge_both(const ProgramSession& session, ProgramWorld* found) {
  const int64_t world = found->world_size;
  const std::string folder = fmt::format("{}/{}", session.scratch, world);
  const RecordedRun several = record_run(session, folder, {.world = world, .watched = true});
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
  Ranks ranks = ranks_of_own_batches(several.ranks);
  found->batches = std::ssize(ranks);
  const RecordedRun one = record_alone(session, folder + "-one", found->batches);
  found->log_tail = one.log_tail;
  if (!one.why.empty()) found->not_run = "on one device, " + one.why;
  if (one.signal != 0 || !one.why.empty()) return one.signal;
  ProgramLane lane = {ProgramLaneKind::float64, judge_models(ranks, world, one.ranks[0]),
                      one_device_control_fails(ranks, one.ranks[0])};
  excuse_parts(ranks, one.ranks[0], &found->lanes[0].finding, &lane.finding);
  if (const ProgramFinding& replicas = found->lanes[0].finding;
      lane.finding.other_data && replicas.cause == ProgramCause::changed_between_steps &&
      replicas.step == 1)
    lane.finding = inconclusive(
        "the ranks' weights differ before their first step (see lane replica), and one device has "
        "only one set of weights");
  take_local_batch_norm(session.options, one.ranks[0], found, &lane);
  Pair pair{.seconds = several.seconds + one.seconds};
  int signal = 0;
  if (lane.finding.other_data && found->batches == world && !found->local_batch_norm)
    signal = judge_with_one_padding(session, one, &ranks, &lane, &pair);
  if (signal != 0) return signal;
  if (!lane.finding.other_data)
    signal = judge_with_scaled_options(
        session, ranks, folder + "-scaled", {},
        [&](const ProgramRank& other) { return judge_models(ranks, world, other); }, found, &lane);
  else if (found->batches == world)
    signal = judge_with_ranks_data(session, one, found, &lane, &pair);
  take_cause_of_replicas(found->lanes, &lane.finding);
  take_cause_of_items(ranks, one.ranks[0], &lane.finding);
  if (lane.finding.verdict == Verdict::fail && !judges_hook(session.options))
    found->comm_hook = several.ranks[0].comm_hook;
  found->lanes.push_back(lane);
  if (signal != 0 || found->batches < world) return signal;
  signal = drill(session, pair, found);
  return signal != 0 ? signal : judge_by_factors(session, ranks, pair, found);
}

}  // namespace

std::unique_ptr<ProgramZygotes> make_zygotes(const ProgramVerification& asked,
                                             const std::string& scratch) {
  if (asked.fresh_processes || asked.start.spawns) return nullptr;
  return std::make_unique<ProgramZygotes>(asked.start.command, program_agent_folder(), scratch,
                                          asked.start.directory);
}

int judge_world(const ProgramVerification& asked, const std::string& scratch,
                ProgramZygotes* zygotes, Signals* signals, ProgramWorld* found) {
  const auto begin = std::chrono::steady_clock::now();
  const int signal =
      judge_both({asked, scratch, found->world_size, zygotes, signals, &found->all_gpus}, found);
  found->duration_s = seconds_since(begin);
  return signal;
}

}  // namespace lockstep
