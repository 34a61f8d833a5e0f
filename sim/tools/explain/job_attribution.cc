#include "sim/tools/explain/job_attribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "sim/tools/explain/dumps_of_logs.h"
#include "sim/tools/explain/late_arrivals.h"
#include "sim/tools/explain/log_fields.h"
#include "sim/tools/explain/other_runs.h"
#include "sim/tools/explain/rank_story.h"
#include "sim/tools/explain/stages.h"

namespace lockstep {
namespace {

constexpr size_t kFaultsTold = 4;  // of a kernel's log, which tells of weeks

class JobAttribution {
 public:
  explicit JobAttribution(const JobEvidence& job) : job_(job) {
    agents_ = std::any_of(job.events.begin(), job.events.end(),
                          [](const LogEvent& event) { return event.by_agent; });
    for (const LogEvent& event : job.events) take(event);
    for (const FlightDump& dump : job.dumps) {
      dumped_.insert(dump.rank);
      world_ = std::max(world_, dump.ranks_at_least);
      if (exchanges_ == nullptr && unrecorded_transfers(dump) > 0) exchanges_ = &dump;
    }
    // A dump of Gloo's lists the ranks of one group, not always of that of all.
    if (world_ > 0 && !job.logged.empty()) world_ = std::max(world_, *job.logged.rbegin() + 1);
    for (const auto& [rank, story] : stories_) {
      const Death death = death_of(story);
      if (death == Death::own) died_.insert(rank);
      if (death == Death::unclear) unclear_.insert(rank);
      if (death != Death::own && story.stuck != nullptr) stuck_.insert(rank);
      if (story.victim != nullptr && death != Death::own) victims_.insert(rank);
    }
    doubt_who_was_ended();
  }

  FlightFinding run() {
    finding_ = attribute(with_logs(job_), sent_more_);
    doubt_other_runs();
    const bool failed = !victims_.empty() || !died_.empty() || !unclear_.empty();
    if (finding_.kind == FlightClass::nothing && finding_.decided && !failed)
      find_late_arrivals(job_.dumps, &finding_);
    doubt_exchanges();
    if (!job_.ignored.empty())
      finding_.evidence.push_back(fmt::format(
          "not read, being neither dump nor text: {}{}", job_.ignored.front(),
          job_.ignored.size() > 1 ? fmt::format(" and {} more", job_.ignored.size() - 1) : ""));
    for (const std::string& file : job_.earlier)
      finding_.evidence.push_back("not read, being of an earlier job: " + file);
    for (const std::string& dump : job_.damaged)
      finding_.evidence.push_back("not read, being damaged: " + dump);
    if (job_.logs == 0) return std::move(finding_);
    for (const LogEvent* fault : node_faults_)
      finding_.evidence.push_back(fmt::format("a kernel reported, at an unknown time ({}): {}",
                                              place_of(*fault), fault->text));
    doubt_who_waited();
    if (!died_.empty())
      conclude_died();
    else if (!finding_.decided || finding_.guilty.empty())
      conclude_without_death();
    add_victims();
    finding_.ranks = std::max(finding_.ranks, world_);
    if (!stories_.empty()) finding_.ranks = std::max(finding_.ranks, stories_.rbegin()->first + 1);
    return std::move(finding_);
  }

 private:
  void take(const LogEvent& event) {
    world_ = std::max(world_, event.world);
    if (event.hint) {
      if (hint_ == nullptr) hint_ = &event;
      if (event.rank >= 0 && !event.local) hinted_.insert(event.rank);
      return;
    }
    if (event.kind == LogEventKind::node_fault) {
      if (node_faults_.size() < kFaultsTold) node_faults_.push_back(&event);
      return;
    }
    if (event.kind == LogEventKind::job_ended) {
      if (job_end_ == nullptr) job_end_ = &event;
      if (event.ordered) job_ends_.try_emplace(event.file, event.line);
      if (event.in_the_end) job_ends_.try_emplace("", 0);  // in no file's order
    }
    if (event.repeated && repeated_ == nullptr) repeated_ = &event;
    if (event.kind == LogEventKind::mismatch && mismatch_ == nullptr) mismatch_ = &event;
    for (const auto& [rank, what] : event.called) called_.emplace(rank, what);
    if (event.sent_more && event.rank >= 0 && !event.local) sent_more_.insert(event.rank);
    if (event.kind == LogEventKind::absent) {
      accused_.insert(event.ranks.begin(), event.ranks.end());
      if (!event.ranks.empty()) accusation_ = &event;
    }
    // Slurm's tasks are launchers where there are any.
    if (event.rank < 0 || (agents_ && event.of_task)) {
      if (is_after_end(event)) return;
      if (event.kind == LogEventKind::ended && nobody_ended_ == nullptr) nobody_ended_ = &event;
      reported_ |= event.kind != LogEventKind::world;
      failed_ |= event.kind == LogEventKind::exception || event.kind == LogEventKind::timed_out ||
                 event.kind == LogEventKind::lost_peer;
      return;
    }
    RankStory& story = stories_[event.rank];
    if (is_after_end(event))
      story.stopped = true;
    else
      story.take(event);
  }

  // Where somebody ended the job, what its ranks then raise is no failure: a loader whose workers
  // are gone, say.
  bool is_after_end(const LogEvent& event) const {
    const auto end = job_ends_.find(event.file);
    return end != job_ends_.end() && end->second < event.line &&
           (event.kind == LogEventKind::exception || event.kind == LogEventKind::ended);
  }

  // Of another file than that which tells of the job's end nobody knows what came first. Who waited
  // for a time-out tells that it was none of that.
  void doubt_who_was_ended() {
    if (job_ends_.empty()) return;
    for (const auto& [rank, story] : stories_)
      if (story.victim != nullptr && story.victim->kind == LogEventKind::timed_out) return;
    for (const auto& [rank, story] : stories_)
      if (story.end == nullptr && story.exception != nullptr &&
          !job_ends_.contains(story.exception->file) && died_.erase(rank) > 0)
        unclear_.insert(rank);
  }

  std::string how_it_died(int64_t rank) const {
    const RankStory& story = stories_.at(rank);
    if (story.exception != nullptr)
      return fmt::format("rank {} ended by its own exception ({}): {}", rank,
                         place_of(*story.exception), story.exception->text);
    return fmt::format("rank {} was ended by signal {} ({}), and reported no lost peer before",
                       rank, story.end->signal, place_of(*story.end));
  }

  RankSet unexplained() const {
    RankSet all = unclear_;
    all.insert(stuck_.begin(), stuck_.end());
    return all;
  }

  // Do the other ends come later than that of `rank`, by the launcher's clock?
  bool came_first(int64_t rank) const {
    const LogEvent* end = stories_.at(rank).end;
    RankSet others = unexplained();
    others.insert(died_.begin(), died_.end());
    others.erase(rank);
    return std::all_of(others.begin(), others.end(), [&](int64_t other) {
      const LogEvent* later = stories_.at(other).end;
      if (end == nullptr || later == nullptr || end->file != later->file) return false;
      // Composer has no times, and tells whom it saw before it killed all.
      return end->time.empty() ? end->first && later->forced : end->time < later->time;
    });
  }

  // But for numbers: of bytes, of a GPU, of an address.
  bool raised_the_same() const {
    std::set<std::string> texts;
    for (const int64_t rank : died_) {
      const LogEvent* exception = stories_.at(rank).exception;
      std::string text = exception == nullptr ? "" : exception->text;
      std::erase_if(text, is_digit);
      texts.insert(std::move(text));
    }
    return texts.size() == 1 && !texts.begin()->empty();
  }

  // What ends in its destructors, as others are gone, ends by a signal as well.
  void keep_who_died_first() {
    const auto first =
        std::find_if(died_.begin(), died_.end(), [&](int64_t rank) { return came_first(rank); });
    if (first == died_.end() || died_.size() < 2) return;
    const int64_t rank = *first;
    unclear_.insert(died_.begin(), died_.end());
    unclear_.erase(rank);
    died_ = {rank};
  }

  void conclude_died() {
    for (const int64_t rank : died_) finding_.evidence.push_back(how_it_died(rank));
    RankSet others = finding_.guilty;
    others.insert(finding_.accused.begin(), finding_.accused.end());
    for (const int64_t rank : died_) others.erase(rank);
    keep_who_died_first();
    if (died_.size() > 1) {
      undecided(raised_the_same()
                    ? "which of them ended first: all raised the same exception, so look at what "
                      "they share (the program, its data, a value that one of them sent)"
                    : "which of them ended first",
                died_);
    } else if (repeated_ != nullptr && repeated_->kind != LogEventKind::ended) {
      undecided(who_else(), died_);
    } else if (!others.empty()) {
      others.insert(died_.begin(), died_.end());
      undecided("which came first, the event in the dumps or the end in the log", others);
    } else if (!came_first(*died_.begin())) {
      RankSet all = unexplained();
      const std::string unknown = rank_list(all);
      all.insert(died_.begin(), died_.end());
      undecided(fmt::format("why {} ended: the log", unknown), all);
    } else {
      name(died_, FlightClass::died);
      const RankStory& story = stories_.at(*died_.begin());
      if (story.exception == nullptr) finding_.signal = story.end->signal;
    }
  }

  std::string who_else() const {
    return fmt::format(
        "which ranks printed the same line ({}), of which Ray shows one: a log with "
        "RAY_DEDUP_LOGS=0",
        place_of(*repeated_));
  }

  void name(const RankSet& ranks, FlightClass kind) {
    RankSet known = finding_.candidates;
    known.insert(finding_.guilty.begin(), finding_.guilty.end());
    if (!includes(known, ranks)) {
      finding_.group.clear();
      finding_.description.clear();
      finding_.operation.clear();
      finding_.sequence = -1;
    }
    finding_.kind = kind;
    finding_.decided = true;
    finding_.guilty = ranks;
    finding_.candidates.clear();
    finding_.missing.clear();
    finding_.lateness_ms.reset();
  }

  static bool includes(const RankSet& all, const RankSet& some) {
    return std::includes(all.begin(), all.end(), some.begin(), some.end());
  }

  void undecided(const std::string& why, const RankSet& candidates) {
    leave_undecided(candidates, why, &finding_);
  }

  // Ranks whose log is there and reports nothing.
  RankSet silent() const {
    RankSet ranks;
    for (const int64_t rank : job_.logged) {
      const auto story = stories_.find(rank);
      if (hinted_.contains(rank)) continue;
      if (story == stories_.end() || story->second.is_silent()) ranks.insert(rank);
    }
    return ranks;
  }

  bool all_others_are_victims(const RankSet& ranks) const {
    if (static_cast<int64_t>(job_.logged.size()) != world_) return false;
    for (int64_t rank = 0; rank < world_; ++rank)
      if (!ranks.contains(rank) && !victims_.contains(rank)) return false;
    return true;
  }

  // Ranks without a dump and without a word, which a launcher ended because of another one.
  RankSet cut_off() const {
    RankSet ranks;
    for (const auto& [rank, story] : stories_)
      if (story.terminated && story.victim == nullptr && story.exception == nullptr &&
          story.end == nullptr && story.stuck == nullptr && !story.progress &&
          !dumped_.contains(rank))
        ranks.insert(rank);
    return ranks;
  }

  // Is `rank` all that the dumps of the others leave open, of which one timed out? Who did not come
  // to a collective, but timed out itself, waited elsewhere.
  bool is_waited_for(int64_t rank) const {
    const int64_t ranks = std::max(world_, finding_.ranks);
    const bool late = finding_.times_unclear || finding_.kind == FlightClass::late;
    if (finding_.decided || late || rank >= ranks || exchanges_ != nullptr) return false;
    if (static_cast<int64_t>(job_.dumps.size()) != ranks - 1) return false;
    RankSet open = finding_.candidates;
    bool timed_out = false;
    for (const auto& [other, story] : stories_) {
      if (story.victim == nullptr || story.victim->kind != LogEventKind::timed_out) continue;
      timed_out |= dumped_.contains(other);
      open.erase(other);
    }
    open.erase(rank);
    return timed_out && open.empty();
  }

  void conclude_without_death() {
    const RankSet quiet = silent();
    const bool gone = quiet.size() == 1 && !dumped_.contains(*quiet.begin()) && !job_.dumps.empty();
    const bool behind =
        quiet.size() == 1 && finding_.only_order_missing && includes(finding_.candidates, quiet);
    const bool missed = !quiet.empty() && accused_ == quiet;
    // Who was asked how far it was came to something, or not: it is not gone.
    const bool asked = std::any_of(quiet.begin(), quiet.end(), [&](int64_t rank) {
      const auto story = stories_.find(rank);
      return story != stories_.end() && story->second.progress;
    });
    const bool doubtful = asked || !unclear_.empty() || !stuck_.empty() ||
                          nobody_ended_ != nullptr || job_end_ != nullptr || mismatch_ != nullptr ||
                          repeated_ != nullptr;
    if (!doubtful && (gone || behind || missed) && all_others_are_victims(quiet)) {
      finding_.evidence.push_back(fmt::format("{} reported nothing{}; all others lost their peers",
                                              rank_list(quiet), behind ? "" : " and left no dump"));
      name(quiet, behind ? FlightClass::never_entered : FlightClass::silent);
      finding_.lost_connection =
          std::any_of(stories_.begin(), stories_.end(), [](const auto& story) {
            return story.second.victim != nullptr &&
                   story.second.victim->kind == LogEventKind::lost_peer;
          });
      return;
    }
    const RankSet cut = cut_off();
    if (!doubtful && cut.size() == 1 && is_waited_for(*cut.begin())) {
      finding_.evidence.push_back(
          fmt::format("{} left no dump, and reported nothing until its launcher ended it; all "
                      "others left dumps, in which no other rank is missing or late",
                      rank_list(cut)));
      return name(cut, FlightClass::silent);
    }
    tell_doubts(quiet);
  }

  void doubt_other_runs() {
    const RankSet others = of_other_runs(job_.dumps);
    if (!others.empty())
      undecided(fmt::format("whether the dump of {} is of this run: its calls and those of the "
                            "others are hours apart",
                            rank_list(others)),
                others);
  }

  // Who waits in a send or receive of Gloo's, of which no dump tells, looks like one that is done.
  void doubt_exchanges() {
    if (exchanges_ == nullptr || finding_.kind != FlightClass::nothing || !finding_.decided) return;
    undecided(
        fmt::format("whether a rank waits in a send or receive: rank {} made {} of them, and "
                    "Gloo's recorder keeps none; the stacks (py-spy dump) of all ranks would tell",
                    exchanges_->rank, unrecorded_transfers(*exchanges_)),
        {});
  }

  // Who lost a peer was in a call: one of a group of which no other dump tells.
  void doubt_who_waited() {
    if (finding_.kind != FlightClass::never_entered) return;
    RankSet waited;
    std::set_intersection(finding_.guilty.begin(), finding_.guilty.end(), victims_.begin(),
                          victims_.end(), std::inserter(waited, waited.end()));
    if (waited.empty()) return;
    undecided(fmt::format("what {} waited for: it reports a lost peer", rank_list(waited)), {});
    for (const int64_t rank : waited) finding_.candidates.erase(rank);
  }

  // Those that called what less than half of those that are told of did: others may not be told of.
  RankSet fewest() const {
    std::map<std::string, RankSet> sides;
    for (const auto& [rank, what] : called_) sides[what].insert(rank);
    RankSet few;
    bool many = false;
    for (const auto& [what, ranks] : sides) {
      many |= 2 * ranks.size() > called_.size();
      if (2 * ranks.size() < called_.size()) few.insert(ranks.begin(), ranks.end());
    }
    return many ? few : RankSet{};
  }

  void tell_doubts(const RankSet& quiet) {
    if (accusation_ != nullptr)
      undecided(fmt::format("why {} never entered the call that others wait in ({}): a log",
                            rank_list(accused_), place_of(*accusation_)),
                accused_);
    tell_ends(stories_, unclear_, stuck_, &finding_.evidence);
    if (!unclear_.empty())
      undecided(fmt::format("why {} ended: the log does not show whether the reason is {} own or a "
                            "peer's",
                            rank_list(unclear_), unclear_.size() > 1 ? "their" : "its"),
                unclear_);
    if (!stuck_.empty())
      undecided(fmt::format("why the watchdog of {} got stuck: a call of its own, or a peer",
                            rank_list(stuck_)),
                stuck_);
    for (const auto& [rank, story] : stories_)
      if (story.stop != nullptr && story.victim == nullptr)
        undecided(fmt::format("what sent SIGTERM to rank {} ({}), the first to end: the log of the "
                              "scheduler or of its host",
                              rank, place_of(*story.stop)),
                  {rank});
    if (nobody_ended_ != nullptr)
      undecided(
          fmt::format("which rank ended ({}): {}", place_of(*nobody_ended_), nobody_ended_->text),
          {});
    if (repeated_ != nullptr && !finding_.decided) undecided(who_else(), {});
    if (job_end_ != nullptr)
      undecided(fmt::format("what happened before the end of the job ({}): {}", place_of(*job_end_),
                            job_end_->text),
                {});
    if (mismatch_ != nullptr)
      undecided(fmt::format("which rank called something else ({}): flight recorder dumps",
                            place_of(*mismatch_)),
                fewest());
    if (!finding_.decided && (victims_.empty() || quiet.empty())) return;
    if (!victims_.empty())
      undecided(
          quiet.empty()
              ? "which rank the others waited for: the logs, or better the flight recorder dumps, "
                "of all ranks"
              : fmt::format(
                    "which rank the others waited for: {} reported no time-out and no lost peer",
                    rank_list(quiet)),
          quiet);
    else if (job_.dumps.empty() || failed_ || hint_ != nullptr || !node_faults_.empty())
      undecided(what_is_missing(), {});
  }

  // Where the logs tell of no rank that waited.
  std::string what_is_missing() const {
    if (hint_ != nullptr && !failed_)
      return fmt::format("what failed, and where ({}): {}", place_of(*hint_), hint_->text);
    if (!node_faults_.empty() && !job_.dumps.empty() && !failed_)
      return "whether the event that a kernel reports ended a rank of this job: the logs of its "
             "ranks";
    if (!node_faults_.empty() && !reported_)
      return "which ranks ran on the host whose kernel reports that: logs or dumps of the job";
    return reported_ ? "which rank these lines belong to: logs with the rank before each line, or "
                       "one file per rank"
                     : "a line that says that a rank failed or waited";
  }

  void add_victims() {
    finding_.victims.insert(victims_.begin(), victims_.end());
    for (const int64_t rank : finding_.guilty) finding_.victims.erase(rank);
    for (const int64_t rank : finding_.candidates) finding_.victims.erase(rank);
  }

  const JobEvidence& job_;
  std::map<int64_t, RankStory> stories_;
  RankSet dumped_, died_, unclear_, stuck_, victims_, accused_, sent_more_;
  RankSet hinted_;  // of which something failed
  int64_t world_ = 0;
  const FlightDump* exchanges_ = nullptr;  // the first whose rank made sends or receives unseen
  const LogEvent* accusation_ = nullptr;
  const LogEvent* job_end_ = nullptr;
  std::map<std::string_view, int64_t> job_ends_;  // by file: in which line it was told to end
  const LogEvent* nobody_ended_ = nullptr;
  const LogEvent* mismatch_ = nullptr;
  const LogEvent* hint_ = nullptr;
  const LogEvent* repeated_ = nullptr;  // of several ranks, of which one is told
  std::vector<const LogEvent*> node_faults_;
  std::map<int64_t, std::string> called_;
  bool agents_ = false;    // launchers of a node's ranks
  bool reported_ = false;  // a line of nobody
  bool failed_ = false;    // and one that tells of a failure
  FlightFinding finding_;
};

}  // namespace

FlightFinding attribute_job(const JobEvidence& job) {
  FlightFinding finding = JobAttribution(job).run();
  const bool alone = job.dumps.empty() && job.traces.empty() && job.logs == 0;
  tell_chakra(job.chakra, alone, &finding);
  return finding;
}

}  // namespace lockstep
