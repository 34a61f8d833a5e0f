#include "sim/tools/explain/job_attribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <map>
#include <string_view>

#include "sim/tools/explain/late_arrivals.h"

namespace lockstep {
namespace {

struct OperationName {
  std::string_view in_logs, in_dumps;
};
constexpr std::array kOperations = {
    OperationName{"ALLREDUCE", "all_reduce"},
    OperationName{"BROADCAST", "broadcast"},
    OperationName{"ALLGATHER", "all_gather"},
    OperationName{"_ALLGATHER_BASE", "_all_gather_base"},
    OperationName{"REDUCE_SCATTER", "reduce_scatter"},
    OperationName{"_REDUCE_SCATTER_BASE", "_reduce_scatter_base"},
    OperationName{"ALLTOALL", "all_to_all"},
    OperationName{"ALLTOALL_BASE", "all_to_all"},
    OperationName{"REDUCE", "reduce"},
    OperationName{"GATHER", "gather"},
    OperationName{"SCATTER", "scatter"},
    OperationName{"BARRIER", "barrier"},
};

// Of which sequence numbers count otherwise: several sends and receives, or part of a group.
bool is_point_to_point(const std::string& operation) {
  constexpr std::array kNames = {"SEND", "RECV", "RECVANYSOURCE", "COALESCED", "UNKNOWN"};
  return std::find(kNames.begin(), kNames.end(), operation) != kNames.end();
}

std::string operation_name(const std::string& operation) {
  for (const OperationName& name : kOperations)
    if (name.in_logs == operation) return std::string(name.in_dumps);
  return operation;
}

std::string place_of(const LogEvent& event) {
  return fmt::format("{}:{}", std::filesystem::path(event.file).filename().string(), event.line);
}

bool is_own_signal(int64_t signal) {
  constexpr std::array kSignals = {4, 7, 8, 9, 11};
  return std::find(kSignals.begin(), kSignals.end(), signal) != kSignals.end();
}

// What the logs say of one rank.
struct RankStory {
  const LogEvent* victim = nullptr;     // the first time-out or lost peer
  const LogEvent* exception = nullptr;  // its own, before that
  const LogEvent* end = nullptr;
  bool stopped = false;
};

enum class Death { none, own, unclear };

class JobAttribution {
 public:
  explicit JobAttribution(const JobEvidence& job) : job_(job) {
    for (const LogEvent& event : job.events) take(event);
    for (const FlightDump& dump : job.dumps) {
      dumped_.insert(dump.rank);
      world_ = std::max(world_, dump.ranks_at_least);
    }
    // A dump of Gloo's lists the ranks of one group, not always of that of all.
    if (world_ > 0 && !job.logged.empty()) world_ = std::max(world_, *job.logged.rbegin() + 1);
    for (const auto& [rank, story] : stories_) {
      const Death death = death_of(story);
      if (death == Death::own) died_.insert(rank);
      if (death == Death::unclear) unclear_.insert(rank);
      if (story.victim != nullptr && death != Death::own) victims_.insert(rank);
    }
  }

  FlightFinding run() {
    finding_ = attribute(with_logs(), sent_more_);
    const bool failed = !victims_.empty() || !died_.empty() || !unclear_.empty();
    if (finding_.kind == FlightClass::nothing && finding_.decided && !failed)
      find_late_arrivals(job_.dumps, &finding_);
    if (!job_.ignored.empty())
      finding_.evidence.push_back(fmt::format(
          "not read, being neither dump nor text: {}{}", job_.ignored.front(),
          job_.ignored.size() > 1 ? fmt::format(" and {} more", job_.ignored.size() - 1) : ""));
    for (const std::string& dump : job_.damaged)
      finding_.evidence.push_back("not read, being damaged: " + dump);
    if (job_.logs == 0) return std::move(finding_);
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
    if (event.kind == LogEventKind::job_ended && job_end_ == nullptr) job_end_ = &event;
    if (event.kind == LogEventKind::mismatch && mismatch_ == nullptr) mismatch_ = &event;
    for (const auto& [rank, what] : event.called) called_.emplace(rank, what);
    if (event.sent_more && event.rank >= 0 && !event.local) sent_more_.insert(event.rank);
    if (event.kind == LogEventKind::absent) {
      accused_.insert(event.ranks.begin(), event.ranks.end());
      if (!event.ranks.empty()) accusation_ = &event;
    }
    if (event.rank < 0) {
      if (event.kind == LogEventKind::ended && nobody_ended_ == nullptr) nobody_ended_ = &event;
      reported_ |= event.kind != LogEventKind::world;
      failed_ |= event.kind == LogEventKind::exception || event.kind == LogEventKind::timed_out ||
                 event.kind == LogEventKind::lost_peer;
      return;
    }
    take_of_rank(event, &stories_[event.rank]);
  }

  void take_of_rank(const LogEvent& event, RankStory* story) {
    switch (event.kind) {
      case LogEventKind::timed_out:
      case LogEventKind::lost_peer:
      case LogEventKind::mismatch:
      case LogEventKind::absent:
        if (story->victim == nullptr) story->victim = &event;
        break;
      case LogEventKind::exception:
        // After what it lost, or in another file than that, it is a consequence.
        if (story->victim == nullptr && story->exception == nullptr) story->exception = &event;
        break;
      case LogEventKind::ended:
        if (story->end == nullptr || (story->end->signal == 0 && event.signal != 0))
          story->end = &event;
        break;
      case LogEventKind::stopped:
        story->stopped = true;
        break;
      case LogEventKind::progress:
      case LogEventKind::job_ended:
      case LogEventKind::world:
        break;
    }
  }

  static Death death_of(const RankStory& story) {
    const LogEvent* exception = story.exception;
    const bool first = exception != nullptr &&
                       (story.victim == nullptr || (story.victim->file == exception->file &&
                                                    exception->line < story.victim->line));
    if (first && exception->own && !exception->local &&
        (exception->certain || story.end != nullptr))
      return Death::own;
    if (first) return Death::unclear;
    if (story.victim != nullptr || story.end == nullptr) return Death::none;
    return is_own_signal(story.end->signal) && !story.end->local ? Death::own : Death::unclear;
  }

  // Each rank that only a log tells of, as the part of a dump that the log holds.
  std::vector<FlightDump> with_logs() const {
    std::vector<FlightDump> dumps = job_.dumps;
    std::map<int64_t, FlightDump> told;
    std::map<std::pair<int64_t, int64_t>, const LogEvent*> works;
    for (const LogEvent& event : job_.events)
      if (event.kind == LogEventKind::timed_out && !event.operation.empty())
        take_work(event, &works[{event.rank, event.sequence}]);
    for (const LogEvent& event : job_.events) {
      if (event.rank < 0 || event.group.empty() || dumped_.contains(event.rank)) continue;
      const auto work = works.find({event.rank, event.sequence});
      add_to(&told[event.rank], event, work == works.end() ? event : *work->second);
    }
    for (auto& [rank, dump] : told) {
      dump.rank = rank;
      dump.from_log = true;
      dumps.push_back(std::move(dump));
    }
    std::sort(dumps.begin(), dumps.end(),
              [](const FlightDump& a, const FlightDump& b) { return a.rank < b.rank; });
    return dumps;
  }

  // The line that says what was called names no group: two of one number may be of two groups.
  static void take_work(const LogEvent& event, const LogEvent** work) {
    static const LogEvent kUnclear;
    if (*work == nullptr)
      *work = &event;
    else if ((*work)->operation != event.operation || (*work)->sizes != event.sizes)
      *work = &kUnclear;
  }

  // `work`: of what it tells, the line that says what was called.
  static void add_to(FlightDump* dump, const LogEvent& event, const LogEvent& work) {
    dump->groups.try_emplace(event.group, FlightGroup{event.description, nullptr});
    FlightStatus& status = dump->status[event.group];
    // The first report counts: later ones are of a job that is being taken down.
    if (status.enqueued < 0 && event.enqueued >= 0) status = {event.enqueued, event.completed};
    if (event.kind != LogEventKind::timed_out || event.sequence < 0) return;
    const auto same =
        std::find_if(dump->entries.begin(), dump->entries.end(), [&](const FlightEntry& entry) {
          return entry.group == event.group && entry.sequence == event.sequence;
        });
    if (same != dump->entries.end()) return;
    FlightEntry entry;
    entry.record = static_cast<int64_t>(dump->entries.size());
    entry.group = event.group;
    entry.sequence = event.sequence;
    entry.operation = operation_name(work.operation);
    entry.point_to_point = is_point_to_point(work.operation);
    entry.sizes = work.sizes;
    status.enqueued = std::max(status.enqueued, event.sequence);
    dump->entries.push_back(std::move(entry));
  }

  std::string how_it_died(int64_t rank) const {
    const RankStory& story = stories_.at(rank);
    if (story.exception != nullptr)
      return fmt::format("rank {} ended by its own exception ({}): {}", rank,
                         place_of(*story.exception), story.exception->text);
    return fmt::format("rank {} ended by signal {}, before it reported a lost peer ({})", rank,
                       story.end->signal, place_of(*story.end));
  }

  // Do the ends that nothing explains come later than that of `rank`, by the launcher's clock?
  bool came_first(int64_t rank) const {
    const LogEvent* end = stories_.at(rank).end;
    return std::all_of(unclear_.begin(), unclear_.end(), [&](int64_t other) {
      const LogEvent* later = stories_.at(other).end;
      return end != nullptr && later != nullptr && !end->time.empty() && end->file == later->file &&
             end->time < later->time;
    });
  }

  void conclude_died() {
    for (const int64_t rank : died_) finding_.evidence.push_back(how_it_died(rank));
    RankSet others = finding_.guilty;
    for (const int64_t rank : died_) others.erase(rank);
    if (died_.size() > 1) {
      undecided("which of them ended first", died_);
    } else if (!others.empty()) {
      others.insert(died_.begin(), died_.end());
      undecided("which comes first, what the dumps say or the end that the log tells of", others);
    } else if (!came_first(*died_.begin())) {
      RankSet all = died_;
      all.insert(unclear_.begin(), unclear_.end());
      undecided(fmt::format("why {} ended: the log", rank_list(unclear_)), all);
    } else {
      name(died_, FlightClass::died);
      const RankStory& story = stories_.at(*died_.begin());
      if (story.exception == nullptr) finding_.signal = story.end->signal;
    }
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
      if (story == stories_.end() ||
          (story->second.victim == nullptr && story->second.exception == nullptr &&
           story->second.end == nullptr && !story->second.stopped))
        ranks.insert(rank);
    }
    return ranks;
  }

  bool all_others_are_victims(const RankSet& ranks) const {
    if (static_cast<int64_t>(job_.logged.size()) != world_) return false;
    for (int64_t rank = 0; rank < world_; ++rank)
      if (!ranks.contains(rank) && !victims_.contains(rank)) return false;
    return true;
  }

  void conclude_without_death() {
    const RankSet quiet = silent();
    const bool gone = quiet.size() == 1 && !dumped_.contains(*quiet.begin()) && !job_.dumps.empty();
    const bool behind =
        quiet.size() == 1 && finding_.only_order_missing && includes(finding_.candidates, quiet);
    const bool missed = !quiet.empty() && accused_ == quiet;
    const bool doubtful = !unclear_.empty() || nobody_ended_ != nullptr || job_end_ != nullptr ||
                          mismatch_ != nullptr;
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
    tell_doubts(quiet);
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

  void tell_unclear() {
    constexpr size_t kMostTold = 8;
    size_t told = 0;
    for (const int64_t rank : unclear_) {
      const RankStory& story = stories_.at(rank);
      const LogEvent* event = story.exception != nullptr ? story.exception : story.end;
      if (event == nullptr || ++told > kMostTold) continue;
      finding_.evidence.push_back(
          fmt::format("rank {} ended ({}): {}", rank, place_of(*event), event->text));
    }
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
      undecided(fmt::format("why {} did not come to the barrier ({}): a log", rank_list(accused_),
                            place_of(*accusation_)),
                accused_);
    tell_unclear();
    if (!unclear_.empty())
      undecided(fmt::format("why {} ended: an exception or signal of its own, or a lost peer",
                            rank_list(unclear_)),
                unclear_);
    if (nobody_ended_ != nullptr)
      undecided(
          fmt::format("which rank ended ({}): {}", place_of(*nobody_ended_), nobody_ended_->text),
          {});
    if (job_end_ != nullptr)
      undecided(fmt::format("what went before the end of the job ({}): {}", place_of(*job_end_),
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
              ? "who was waited for: the logs, or better the flight recorder dumps, of all ranks"
              : fmt::format("who was waited for: {} reported no time-out and no lost peer",
                            rank_list(quiet)),
          quiet);
    else if (job_.dumps.empty() || failed_)
      undecided(reported_
                    ? "whose lines these are: logs with a rank before each line, or a file a rank"
                    : "a line that says that a rank failed or waited",
                {});
  }

  void add_victims() {
    finding_.victims.insert(victims_.begin(), victims_.end());
    for (const int64_t rank : finding_.guilty) finding_.victims.erase(rank);
    for (const int64_t rank : finding_.candidates) finding_.victims.erase(rank);
  }

  const JobEvidence& job_;
  std::map<int64_t, RankStory> stories_;
  RankSet dumped_, died_, unclear_, victims_, accused_, sent_more_;
  int64_t world_ = 0;
  const LogEvent* accusation_ = nullptr;
  const LogEvent* job_end_ = nullptr;
  const LogEvent* nobody_ended_ = nullptr;
  const LogEvent* mismatch_ = nullptr;
  std::map<int64_t, std::string> called_;
  bool reported_ = false;  // a line of nobody
  bool failed_ = false;    // and one that tells of a failure
  FlightFinding finding_;
};

}  // namespace

FlightFinding attribute_job(const JobEvidence& job) { return JobAttribution(job).run(); }

}  // namespace lockstep
