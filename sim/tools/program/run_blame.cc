#include "sim/tools/program/run_blame.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>

#include "reducer/probe.h"
#include "sim/judge/blame.h"
#include "sim/judge/failure.h"
#include "sim/judge/other_calls.h"
#include "sim/judge/rank_view.h"
#include "sim/tools/program/group_calls.h"
#include "sim/tools/program/group_waits.h"

namespace lockstep {
namespace {

ErrorKind error_of(const std::vector<RankView>& views, int64_t rank) {
  const RankView* view = view_of(views, rank);
  return view != nullptr ? view->evidence.error.kind : ErrorKind::none;
}

// Did another that hangs as well come exactly as far, and is neither stopped? Then who waits for
// whom is not known.
bool is_undecided_hang(const RunOutcome& outcome, const std::vector<RankView>& views,
                       const Failure& failure) {
  if (failure.kind != "hang" || !failure.rank) return false;
  const RankView* primary = view_of(views, *failure.rank);
  const ProcessEnd* end = end_of(outcome, *failure.rank);
  if (primary == nullptr || (end != nullptr && end->state && is_stopped(*end->state))) return false;
  return std::any_of(views.begin(), views.end(), [&](const RankView& other) {
    const ProcessEnd* ended = end_of(outcome, other.rank);
    if (other.rank == primary->rank || ended == nullptr || !ended->past_deadline) return false;
    const bool same_step =
        !other.last_event == !primary->last_event &&
        (!other.last_event || (other.last_event->step == primary->last_event->step &&
                               other.last_event->kind == primary->last_event->kind &&
                               other.last_event->phase == primary->last_event->phase));
    return same_step && last_arrival(&other) == last_arrival(primary) &&
           other.events_in_step == primary->events_in_step;
  });
}

// Of the kinds of failure that ranks that call different collectives may end by.
bool may_be_mismatch(const Failure& failure) {
  // Gloo ends a process by SIGABRT that is sent more than it has room for.
  const bool aborted = failure.kind == "crash" && failure.signal == SIGABRT;
  return aborted || failure.kind == "timeout" || failure.kind == "rejected" ||
         failure.kind == "hang";
}

// Who of these ranks called another collective than most is behind what followed; of two ranks
// nobody can tell. `where`: " in the group of ranks 0 and 1".
void blame_few(const std::vector<CallSide>& sides, size_t ranks, const std::string& where,
               Failure* failure) {
  std::vector<std::string> texts;
  std::vector<int64_t> few, all;
  for (const CallSide& side : sides) {
    texts.push_back(
        fmt::format("{} called {}", ranks_text(side.ranks), collective_text(side.call)));
    all.insert(all.end(), side.ranks.begin(), side.ranks.end());
    if (2 * side.ranks.size() < ranks) few.insert(few.end(), side.ranks.begin(), side.ranks.end());
  }
  failure->kind = "rejected";
  failure->cause = "collective_mismatch";
  failure->rank.reset();
  if (few.size() == 1) failure->rank = few[0];
  for (const CallSide& side : sides)
    if (failure->rank ? side.ranks == few : &side == &sides[0]) {
      failure->explanation.collective = collective_of(side.call);
      failure->step = side.call.step;
      failure->phase = to_word(static_cast<Phase>(side.call.phase));
    }
  failure->message =
      fmt::format("ranks called different collectives{}: {}{}", where, fmt::join(texts, ", "),
                  failure->rank ? "" : "; which of them is wrong is not known");
  for (const int64_t rank : all)
    if (failure->rank != rank) failure->secondary.push_back(rank);
  std::sort(failure->secondary.begin(), failure->secondary.end());
  auto& victims = failure->secondary;
  victims.erase(std::unique(victims.begin(), victims.end()), victims.end());
  if (failure->rank) std::erase(victims, *failure->rank);
}

void blame_mismatch(const std::vector<RankView>& views, Failure* failure) {
  if (!may_be_mismatch(*failure)) return;
  const std::vector<CallSide> sides = first_other_calls(views, is_other_call);
  if (!sides.empty()) blame_few(sides, views.size(), "", failure);
}

bool blame_group_mismatch(const ProgramRun& run, Failure* failure) {
  const auto found =
      may_be_mismatch(*failure) ? first_group_mismatch(run, is_other_call) : std::nullopt;
  if (!found) return false;
  blame_few(found->sides, found->members.size(),
            fmt::format(" in the group of {}", ranks_text(found->members)), failure);
  return true;
}

// "ranks 0 and 2 wait in collective 3 of the group of ranks 0, 1 and 2"
std::string to_words(const GroupWait& wait) {
  return fmt::format("{} {} in collective {} of the group of {}", ranks_text(wait.waiting),
                     wait.waiting.size() == 1 ? "waits" : "wait", wait.call,
                     ranks_text(wait.members));
}

// What a rank waits in that none of `others` has entered; null: in nothing.
const Event* waits_for(const RankView& view, const std::vector<int64_t>& others,
                       const std::vector<RankView>& views) {
  const Event* pending = pending_in(view);
  if (pending == nullptr) return nullptr;
  const bool entered = std::any_of(others.begin(), others.end(), [&](int64_t rank) {
    const RankView* other = view_of(views, rank);
    return other != nullptr && last_arrival(other) >= pending->sequence;
  });
  return entered ? nullptr : pending;
}

// What the rank does that is missing there, and is not to blame for that alone.
std::string what_else(const GroupWait& wait, const Event* elsewhere) {
  if (elsewhere != nullptr)
    return fmt::format("waits in {} for {}", collective_text(*elsewhere), ranks_text(wait.waiting));
  return wait.circular ? "waits in another group" : "ended by itself";
}

// When it gave up, if it timed out: who came later than that came too late. Else the end of all.
int64_t gave_up_ns(const std::vector<RankView>& views, const Failure& failure) {
  const RankView* view = view_of(views, *failure.rank);
  const bool timed_out = failure.kind == "timeout" && view != nullptr && view->error_ns;
  return timed_out ? *view->error_ns : kWholeRun;
}

// Who is missing, where that is one, and neither waits for these nor ended by itself.
void blame_missing(const GroupWait& wait, const std::vector<RankView>& views, Failure* failure) {
  failure->secondary = wait.victims;
  failure->rank.reset();
  failure->kind = "hang";
  failure->message = fmt::format("{}, which {} {}", to_words(wait), ranks_text(wait.missing),
                                 wait.late ? "entered too late" : "never entered");
  const RankView* missing = wait.missing.size() == 1 ? view_of(views, wait.missing[0]) : nullptr;
  if (missing == nullptr) return;
  const Event* elsewhere = waits_for(*missing, wait.waiting, views);
  if (elsewhere == nullptr && !wait.circular && !missing->finished) {
    failure->rank = missing->rank;
    if (!wait.late) failure->message += fmt::format(": it was {}", where(missing));
    return;
  }
  failure->kind = "rejected";
  failure->cause = "collective_mismatch";
  failure->message += fmt::format("; rank {} {}: which of them is wrong is not known",
                                  missing->rank, what_else(wait, elsewhere));
}

// Who waits within a group for a rank that never came is not to blame for what others wait for.
bool blame_group_wait(const ProgramRun& run, const std::vector<RankView>& views, Failure* failure) {
  const bool waited = failure->kind == "timeout" || failure->kind == "hang" ||
                      (failure->kind == "exception" && failure->rank &&
                       error_of(views, *failure->rank) == ErrorKind::peer_lost);
  if (!waited || !failure->rank) return false;
  const std::optional<GroupWait> wait =
      root_of_group_wait(run, *failure->rank, gave_up_ns(views, *failure));
  if (wait) blame_missing(*wait, views, failure);
  return wait.has_value();
}

// Of a hang in which several stand at the same place: those that wait in a group do not.
bool blame_longest_wait(const ProgramRun& run, const std::vector<RankView>& views,
                        Failure* failure) {
  const std::optional<GroupWait> longest = longest_group_wait(run);
  if (!longest) return false;
  const auto root = root_of_group_wait(run, longest->waiting.front(), kWholeRun);
  if (root) blame_missing(*root, views, failure);
  return root.has_value();
}

// It ended well, or was about to, while others waited for it.
bool left_early(const RunOutcome& outcome, const Failure& failure) {
  if (failure.kind != "exit" || !failure.rank) return false;
  const ProcessEnd* end = end_of(outcome, *failure.rank);
  return end != nullptr && (end->by_launcher || (end->signal == 0 && end->exit_code == 0));
}

const Event* pending_of(const std::vector<RankView>& views, int64_t rank) {
  const RankView* view = view_of(views, rank);
  return view == nullptr ? nullptr : pending_in(*view);
}

const Event* first_pending(const std::vector<RankView>& views) {
  for (const RankView& view : views)
    if (const Event* pending = pending_in(view)) return pending;
  return nullptr;
}

// Of a run in which ranks lost a peer: those that ended by themselves, and well, before they had
// entered what another waits for. They made as many steps, but left out collectives, unless the
// others made some too many: the fewer ranks are behind it.
void blame_who_left_out(const ProgramRun& run, const std::vector<RankView>& views,
                        Failure* failure) {
  const bool left = left_early(run.outcome, *failure);
  const bool lost_peer = failure->kind == "exception" && failure->rank &&
                         error_of(views, *failure->rank) == ErrorKind::peer_lost;
  const Event* pending = left        ? first_pending(views)
                         : lost_peer ? pending_of(views, *failure->rank)
                                     : nullptr;
  if (pending == nullptr) return;
  std::vector<int64_t> ended, waiting;
  for (const RankView& view : views) {
    const ProcessEnd* end = end_of(run.outcome, view.rank);
    const bool well = end != nullptr && !end->by_launcher && end->signal == 0 &&
                      end->exit_code == 0 && view.primary_done;
    if ((well || (left && view.rank == *failure->rank)) && last_arrival(&view) < pending->sequence)
      ended.push_back(view.rank);
    if (last_arrival(&view) >= pending->sequence) waiting.push_back(view.rank);
  }
  if (ended.empty() || (left && ended.size() == 1 && waiting.size() > 1)) return;
  failure->rank.reset();
  failure->kind = "exit";
  failure->secondary = waiting;
  const int64_t made = last_arrival(view_of(views, ended[0]));
  failure->message =
      fmt::format("{} exited after {} {}, while {} waited in {}", ranks_text(ended), made,
                  plural(made, "collective"), ranks_text(waiting), collective_text(*pending));
  if (ended.size() == 1 && waiting.size() > 1) {
    failure->rank = ended[0];
    failure->message += ": it skipped some";
  } else if (waiting.size() == 1 && ended.size() > 1) {
    failure->rank = waiting[0];
    failure->secondary.clear();
    failure->message += ": it made too many";
  } else {
    failure->kind = "rejected";
    failure->cause = "collective_mismatch";
    failure->message += "; it is unknown which rank made too many or too few";
  }
}

// Who tells of a lost peer, and is the only one that ended by itself, has lost nobody that is
// known.
void excuse_lone_victim(const ProgramRun& run, const std::vector<RankView>& views,
                        Failure* failure) {
  if (failure->kind != "exception" || !failure->rank ||
      error_of(views, *failure->rank) != ErrorKind::peer_lost)
    return;
  const bool alone = std::all_of(
      run.outcome.ends.begin(), run.outcome.ends.end(),
      [&](const ProcessEnd& end) { return end.by_launcher || end.rank == *failure->rank; });
  if (!alone) return;
  failure->message += "; all others were still running: it is unknown which rank it waited for";
  failure->secondary.push_back(*failure->rank);
  failure->rank.reset();
}

// All ended at one line by exceptions of one type, in words of their own: they found that they are
// not alike, as where DistributedDataParallel takes a model of each, and the first to say so may be
// right.
void name_none_of(const ProgramRun& run, ProgramRunResult* result) {
  Failure& failure = *result->failure;
  const ProgramRankFacts& first = run.ranks[0];
  std::vector<int64_t> all;
  for (const ProgramRankFacts& rank : run.ranks) {
    if (rank.error.empty() || rank.line != first.line ||
        type_of_error(rank.error) != type_of_error(first.error))
      return;
    all.push_back(static_cast<int64_t>(all.size()));
  }
  if (all.size() < 2) return;
  failure.kind = "rejected";
  result->disagree = true;
  failure.message = fmt::format("{} ended with exceptions of the same type{}: {}", ranks_text(all),
                                first.line.empty() ? "" : " at " + first.line, first.error);
  failure.secondary = all;
  failure.rank.reset();
}

// A mistake that all ranks make alike is no rank's: who ended first says nothing.
void share_exception(const ProgramRun& run, ProgramRunResult* result) {
  Failure& failure = *result->failure;
  if (failure.kind != "exception" || !failure.rank) return;
  const ProgramRankFacts& first = run.ranks[static_cast<size_t>(*failure.rank)];
  std::vector<int64_t> alike;
  for (size_t rank = 0; rank < run.ranks.size(); ++rank)
    if (!first.error.empty() && run.ranks[rank].error == first.error &&
        run.ranks[rank].line == first.line)
      alike.push_back(static_cast<int64_t>(rank));
  if (alike.size() < 2) return name_none_of(run, result);
  failure.message = fmt::format("{} ended by the same exception{}: {}", ranks_text(alike),
                                first.line.empty() ? "" : " at " + first.line, first.error);
  failure.secondary.push_back(*failure.rank);
  for (const int64_t rank : alike) std::erase(failure.secondary, rank);
  failure.rank.reset();
}

bool stand_alike(const RankView& a, const RankView& b) {
  if (!a.last_event || !b.last_event) return !a.last_event == !b.last_event;
  return a.last_event->step == b.last_event->step && a.last_event->phase == b.last_event->phase;
}

// Ranks that die alike, by the same signal and in the same phase, and of which none waits for
// another, die of what they all do, or of the machine.
void share_crash(const ProgramRun& run, const std::vector<RankView>& views, Failure* failure) {
  if (failure->kind != "crash" || !failure->rank) return;
  const RankView* first = view_of(views, *failure->rank);
  std::vector<int64_t> alike;
  for (const ProcessEnd& end : run.outcome.ends) {
    const RankView* view = view_of(views, end.rank);
    const auto& ended = run.ended_by_program;
    if (std::find(ended.begin(), ended.end(), end.rank) != ended.end()) continue;
    if (view != nullptr && first != nullptr && !end.by_launcher && end.signal == failure->signal &&
        pending_in(*view) == nullptr && stand_alike(*view, *first))
      alike.push_back(end.rank);
  }
  if (alike.size() < 2) return;
  std::sort(alike.begin(), alike.end());
  const std::string& said = run.end.aborted;
  failure->message = fmt::format("{} all ended by {}{}{}", ranks_text(alike),
                                 signal_text(*failure->signal), said.empty() ? "" : ": ", said);
  for (const int64_t rank : alike) std::erase(failure->secondary, rank);
  failure->rank.reset();
}

// Who told of an error and was still on its way out when the run was ended failed as well.
void add_slow_victims(const ProgramRun& run, Failure* failure) {
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    const auto rank = static_cast<int64_t>(i);
    auto& victims = failure->secondary;
    if (run.ranks[i].error.empty() || failure->rank == rank) continue;
    if (std::find(victims.begin(), victims.end(), rank) == victims.end()) victims.push_back(rank);
  }
  std::sort(failure->secondary.begin(), failure->secondary.end());
}

}  // namespace

std::string type_of_error(const std::string& error) { return error.substr(0, error.find(':')); }

namespace {

// Of these all ranks give as much, over Gloo; of a broadcast or a scatter the source may alone.
bool is_sized_alike(uint8_t operation) {
  return operation == static_cast<uint8_t>(Operation::all_reduce) ||
         operation == static_cast<uint8_t>(Operation::all_gather) ||
         operation == static_cast<uint8_t>(Operation::reduce_scatter);
}

}  // namespace

bool is_other_call(const Event& a, const Event& b) {
  const PackedCollective one = unpack_collective(a.value), two = unpack_collective(b.value);
  const bool other_root =
      a.subject <= kRootSubject && b.subject <= kRootSubject && a.subject != b.subject;
  return one.operation != two.operation || other_root ||
         (is_sized_alike(one.operation) && (one.bytes != two.bytes || one.dtype != two.dtype));
}

void take_failure(const ProgramRun& run, ProgramRunResult* result) {
  const std::vector<RankView> views = views_of(run.outcome);
  result->failure = find_failure(run.outcome, views);
  if (!result->failure) {
    result->why = "a process failed, and it is unknown which failed first";
  } else if (result->failure->kind == "starved") {
    result->why = result->failure->message;
  } else if (blame_group_mismatch(run, &*result->failure) ||
             blame_group_wait(run, views, &*result->failure) ||
             (first_other_calls(views, is_other_call).empty() &&
              is_undecided_hang(run.outcome, views, *result->failure) &&
              blame_longest_wait(run, views, &*result->failure))) {
    add_slow_victims(run, &*result->failure);
  } else if (first_other_calls(views, is_other_call).empty() &&
             is_undecided_hang(run.outcome, views, *result->failure)) {
    result->why = fmt::format(
        "no rank makes progress, and several are at the same place ({}): it is unknown which one "
        "blocks the others",
        where(view_of(views, *result->failure->rank)));
    result->failure.reset();
  } else {
    blame_mismatch(views, &*result->failure);
    blame_who_left_out(run, views, &*result->failure);
    excuse_lone_victim(run, views, &*result->failure);
    add_slow_victims(run, &*result->failure);
    share_exception(run, result);
    share_crash(run, views, &*result->failure);
  }
}

}  // namespace lockstep
