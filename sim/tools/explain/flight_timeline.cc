#include "sim/tools/explain/flight_timeline.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "scenarios/json/json_text.h"
#include "sim/tools/explain/flight_clocks.h"
#include "sim/tools/explain/flight_groups.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kTickNs = 1000;
constexpr size_t kAtTheEnd = 32;      // calls that are looked at first where all have ended
constexpr size_t kBeforeOpen = 8;     // else: so many before the first that never did
constexpr int kBefore = 1, kEnd = 2;  // the parts of the picture

// A rank in a call of several; who is a member and has none never came, if its dump would tell.
struct DrawnPassage {
  int64_t called_ns = 0;
  bool open = false;
};

struct DrawnCall {
  int64_t sequence = 0;
  std::string name;  // "all_reduce of group 3"
  std::map<int64_t, DrawnPassage> ranks;
  std::set<int64_t> missing;
  int64_t first_ns = INT64_MAX, last_ns = 0;  // at which one of them called it

  void enter(int64_t rank, int64_t called_ns, bool open) {
    ranks[rank] = {called_ns, open};
    first_ns = std::min(first_ns, called_ns);
    last_ns = std::max(last_ns, called_ns);
  }
};

class FlightPicture {
 public:
  FlightPicture(const std::vector<FlightDump>& dumps, const FlightFinding& found)
      : dumps_(dumps),
        found_(found),
        groups_(flight_groups(dumps, &ambiguous_)),
        ahead_(clocks_ahead(groups_)) {
    for (const FlightDump& dump : dumps) {
      if (!dump.from_log) dumped_.insert(dump.rank);
      ranks_ = std::max(ranks_, dump.rank + 1);
      for (const FlightEntry& entry : dump.entries) take(dump.rank, entry);
    }
    note_last();
    for (const auto& [name, group] : groups_)
      for (const auto& [sequence, arrivals] : group.collectives)
        add(name, group, sequence, arrivals);
    std::sort(calls_.begin(), calls_.end(),
              [](const DrawnCall& a, const DrawnCall& b) { return a.first_ns < b.first_ns; });
  }

  std::optional<std::string> text(int64_t most) {
    if (calls_.empty() || ranks_ > most) return std::nullopt;
    const size_t left_out = leave_out_oldest(most);
    origin_ns_ = calls_.front().first_ns;
    Json calls = Json::array();
    const size_t end = begin_of_end();
    for (size_t i = 0; i < calls_.size(); ++i)
      calls.push_back(row_of(calls_[i], i < end ? kBefore : kEnd));
    std::vector<int64_t> marked(found_.guilty.begin(), found_.guilty.end());
    if (marked.empty()) marked.assign(found_.candidates.begin(), found_.candidates.end());
    std::erase_if(marked, [&](int64_t rank) { return rank >= ranks_; });
    const Json json = {
        {"name", "what the dumps hold"},
        {"world_size", ranks_},
        {"tick_ns", kTickNs},
        {"step_word", "part"},
        {"waits_to_end", true},
        {"focus", {{"ranks", marked}, {"step", kEnd}, {"what", what()}}},
        {"last_step", kEnd},
        {"first_drawn", 1},
        {"last_drawn", kEnd},
        {"note", note(left_out)},
        {"phase_words", Json::array()},
        {"phases", Json(std::vector<Json>(static_cast<size_t>(ranks_), Json::array()))},
        {"collectives", std::move(calls)},
        {"marks", Json::array()},
        {"metrics", {{"ranks", Json::array()}}},
        {"steps", Json::array()}};
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

 private:
  // Of collectives who has called what last; sends and receives are calls of one rank.
  void take(int64_t rank, const FlightEntry& entry) {
    if (entry.created_ns <= 0 || !entry.point_to_point) return;
    DrawnCall call;
    call.sequence = entry.point_to_point_sequence;
    call.name = words_of(entry, groups_.at(entry.group));
    call.enter(rank, called_ns(rank, entry), !entry.done && !entry.gloo);
    calls_.push_back(std::move(call));
  }

  void add(const std::string& name, const GroupRecord& group, int64_t sequence,
           const std::vector<FlightArrival>& arrivals) {
    DrawnCall call;
    call.sequence = sequence;
    for (const FlightArrival& one : arrivals) {
      if (one.entry->created_ns <= 0) continue;
      call.name = words_of(*one.entry, group);
      call.enter(one.rank, called_ns(one.rank, *one.entry), is_open(name, group, one, sequence));
    }
    if (call.ranks.empty()) return;
    for (const int64_t rank : group.members)
      if (!call.ranks.contains(rank) && never_came(name, rank, sequence)) call.missing.insert(rank);
    calls_.push_back(std::move(call));
  }

  // By the middle clock, where the rank's own is far from it.
  int64_t called_ns(int64_t rank, const FlightEntry& entry) const {
    const auto ahead = ahead_.find(rank);
    if (ahead == ahead_.end() || entry.created_ns > INT64_MAX / 2) return entry.created_ns;
    return std::max<int64_t>(1, entry.created_ns - ahead->second);
  }

  // Gloo does not say what completed: whoever called something after it in the group has left it,
  // and so has everyone where all came.
  bool is_open(const std::string& name, const GroupRecord& group, const FlightArrival& arrival,
               int64_t sequence) const {
    if (arrival.entry->done) return false;
    if (!arrival.entry->gloo) return true;
    return last_.at({name, arrival.rank}) <= sequence &&
           group.collectives.at(sequence).size() < group.members.size();
  }

  // Its dump is there, tells of the group, and ends before this.
  bool never_came(const std::string& name, int64_t rank, int64_t sequence) const {
    if (!dumped_.contains(rank)) return false;
    const auto last = last_.find({name, rank});
    if (last != last_.end()) return last->second < sequence;
    return name == found_.group && found_.guilty.contains(rank);
  }

  // The last collective of a group that each rank is known to have called.
  void note_last() {
    for (const auto& [name, group] : groups_) {
      for (const auto& [rank, status] : group.status)
        if (status.enqueued >= 0) last_[{name, rank}] = status.enqueued;
      for (const auto& [sequence, arrivals] : group.collectives)
        for (const FlightArrival& one : arrivals) {
          int64_t& last = last_[{name, one.rank}];
          last = std::max(last, sequence);
        }
    }
  }

  std::string words_of(const FlightEntry& entry, const GroupRecord& group) const {
    std::string call = entry.operation;
    if (entry.peer >= 0)
      call += fmt::format(" {}{}{}", entry.own_number, entry.sends ? "->" : "<-", entry.peer);
    if (groups_.size() < 2) return call;
    return fmt::format("{} of {}", call,
                       group.description.empty() ? "group " + entry.group : group.description);
  }

  size_t leave_out_oldest(int64_t most) {
    const auto kept =
        static_cast<size_t>(std::max<int64_t>(1, most / std::max<int64_t>(1, ranks_)));
    const size_t left_out = calls_.size() - std::min(calls_.size(), kept);
    calls_.erase(calls_.begin(), calls_.begin() + static_cast<int64_t>(left_out));
    return left_out;
  }

  size_t begin_of_end() const {
    const auto is_open = [](const DrawnCall& call) {
      return !call.missing.empty() || std::any_of(call.ranks.begin(), call.ranks.end(),
                                                  [](const auto& one) { return one.second.open; });
    };
    const auto open = std::find_if(calls_.begin(), calls_.end(), is_open);
    const auto first = static_cast<size_t>(open - calls_.begin());
    const size_t wanted = open == calls_.end() ? kAtTheEnd : kBeforeOpen;
    return first - std::min(first, wanted);
  }

  // As the page has them: sequence, operation, bucket, bytes, part; then by rank, null of one that
  // never came and 0 of one that is not in the group, or of which the dump does not tell.
  Json row_of(const DrawnCall& call, int part) const {
    Json row = {call.sequence, call.name, -1, -1, part};
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      const auto own = call.ranks.find(rank);
      if (own == call.ranks.end()) {
        row.push_back(call.missing.contains(rank) ? Json() : Json(0));
        continue;
      }
      const DrawnPassage& passage = own->second;
      row.push_back({nullptr, at(passage.called_ns), nullptr,
                     passage.open ? Json() : Json(at(call.last_ns))});
    }
    return row;
  }

  int64_t at(int64_t time_ns) const { return (time_ns - origin_ns_) / kTickNs; }

  std::string what() const {
    if (found_.guilty.empty()) return found_.candidates.empty() ? "the last calls" : "undecided";
    std::string words = name_of(found_.kind);
    std::replace(words.begin(), words.end(), '_', ' ');
    return words;
  }

  std::string clocks() const {
    if (ahead_.empty()) return "Each rank's times are those of its own clock.";
    constexpr size_t kMostTold = 8;
    std::string text =
        "Each rank's times are those of its own clock, except for clocks that differ, by";
    size_t told = 0;
    for (const auto& [rank, ns] : ahead_) {
      if (told == kMostTold) break;
      text += fmt::format("{} {:+.1f} s (rank {})", told++ == 0 ? "" : ",",
                          static_cast<double>(ns) / 1e9, rank);
    }
    if (ahead_.size() > told) text += fmt::format(" and {} more", ahead_.size() - told);
    return text + ": these are aligned by the collectives that ranks called together.";
  }

  std::string note(size_t left_out) const {
    std::string text = clocks() +
                       " Dumps do not say when a collective ended: a completed one is drawn up to "
                       "the moment at which its last rank entered it.";
    if (left_out > 0) text += fmt::format(" {} earlier calls are left out.", left_out);
    return text;
  }

  const std::vector<FlightDump>& dumps_;
  const FlightFinding& found_;
  std::set<std::string> ambiguous_;
  const std::map<std::string, GroupRecord> groups_;
  const std::map<int64_t, int64_t> ahead_;  // by rank: nanoseconds, of a clock that is far apart
  std::set<int64_t> dumped_;
  std::map<std::pair<std::string, int64_t>, int64_t> last_;  // by group and rank
  std::vector<DrawnCall> calls_;
  int64_t ranks_ = 0, origin_ns_ = 0;
};

}  // namespace

std::optional<std::string> flight_timeline(const std::vector<FlightDump>& dumps,
                                           const FlightFinding& found, int64_t most) {
  if (dumps.empty()) return std::nullopt;
  return FlightPicture(dumps, found).text(most);
}

}  // namespace lockstep
