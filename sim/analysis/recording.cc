#include "sim/analysis/recording.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "scenarios/base/file.h"
#include "scenarios/json/json_lines.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

InputError refused_recording(const std::string& path, const std::string& message) {
  return file_error(path, message, "what scripts/lockstep_record.py leaves");
}

std::string description_path(const std::string& folder) { return folder + "/recording.json"; }

struct Description {
  std::string name;
  int64_t world_size = 0, hash_every = 0, hash_version = 1;
  bool tensors = false;
};

bool is_within(const Json& value, int64_t least, int64_t most) {
  return value.is_number_integer() && value >= least && value <= most;
}

Expected<Description> describe(const std::string& folder) {
  constexpr int64_t kMostRanks = 65'536, kMostSteps = int64_t{1} << 40;
  const std::string path = description_path(folder);
  const auto text = read_foreign_file(path);
  if (!text) return text.errors();
  const Json json = json_or_discarded(text.value());
  if (!json.is_object() || json.value("format", Json()) != "lockstep_recording" ||
      json.value("version", Json()) != 1)
    return refused_recording(path, "is no recording of version 1");
  const Json ranks = json.value("world_size", Json()), name = json.value("name", Json());
  if (!is_within(ranks, 1, kMostRanks) || !name.is_string())
    return refused_recording(path, "lacks its name or its world size, 1 to 65536");
  const Json every = json.value("hash_every", Json()), hash = json.value("hash", Json(1)),
             tensors = json.value("tensors", Json(false));
  if (!is_within(every, 1, kMostSteps) || !is_within(hash, 1, INT32_MAX) || !tensors.is_boolean())
    return refused_recording(path, "does not say how it was hashed");
  return Description{name.get<std::string>(), ranks.get<int64_t>(), every.get<int64_t>(),
                     hash.get<int64_t>(), tensors.get<bool>()};
}

// At the end of a run there are no gradients. Throws nlohmann::json::exception.
HashedStep::Tensors tensors_of(const Json& line, const char* kind, bool at_end) {
  if (at_end && std::string_view(kind) == "gradient" && !line.contains(kind)) return {};
  const auto& found = line.at(kind).get_ref<const Json::object_t&>();
  HashedStep::Tensors tensors;
  for (const auto& [name, hash] : found) tensors.emplace_back(name, hash.get<std::string>());
  return tensors;
}

// A line of a file of hashes: as TakeJson.
std::string take_hashes(const Json& line, int64_t every, RecordedRank* rank) {
  const bool at_end = line.value("end", false);
  HashedStep step;
  step.step = whole_number(line.at("step"));
  if (step.step < 0 || step.step > INT32_MAX) return "there is no such step";
  for (size_t kind = 0; kind < HashedStep::kKinds.size(); ++kind) {
    step.tensors.at(kind) = tensors_of(line, HashedStep::kKinds.at(kind), at_end);
    for (const auto& [name, hash] : step.tensors.at(kind))
      if (hash.empty()) return "a hash is empty";
  }
  if (rank->end ||
      (!rank->hashed.empty() && step.step < rank->hashed.back().step + (at_end ? 0 : 1)))
    return "steps are in another order";
  if (!at_end && (step.step == 0 || step.step % every != 0))
    return fmt::format("it is of step {}, and hash_every is {}", step.step, every);
  if (at_end)
    rank->end = std::move(step);
  else
    rank->hashed.push_back(std::move(step));
  return "";
}

Expected<RankRecords> records_of(const std::string& folder, int64_t rank, int64_t world_size) {
  RankRecords records;
  std::string why;
  const std::string path = fmt::format("{}/rank-{}.records", folder, rank);
  if (!read_records(path, &records, &why)) return refused_recording(path, why);
  if (records.rank != rank || records.world_size != world_size)
    return refused_recording(path,
                             fmt::format("is of rank {} of {}", records.rank, records.world_size));
  return records;
}

void add_records(const RankRecords& records, RecordedRank* rank) {
  auto hashed = rank->hashed.begin();
  for (const Event& event : records.events) {
    const auto kind = static_cast<EventKind>(event.kind);
    if (kind == EventKind::step_end)
      rank->last_step = std::max<int64_t>(rank->last_step, event.step);
    if (kind == EventKind::finished) rank->finished = true;
    if (kind != EventKind::state_hash || event.subject < 0 ||
        event.subject >= static_cast<int32_t>(HashedStep::kKinds.size()))
      continue;
    while (hashed != rank->hashed.end() && hashed->step < event.step) ++hashed;
    if (hashed != rank->hashed.end() && hashed->step == event.step)
      hashed->chains.at(static_cast<size_t>(event.subject)) = event.value;
  }
}

}  // namespace

bool is_recording(const std::string& folder) {
  std::error_code error;
  return std::filesystem::exists(description_path(folder), error);
}

Expected<RunOutcome> read_recorded_run(const std::string& folder) {
  const auto description = describe(folder);
  if (!description) return description.errors();
  RunOutcome outcome;
  outcome.run_dir = folder;
  outcome.plan.scenario.name = description.value().name;
  outcome.plan.scenario.world_size = description.value().world_size;
  for (int64_t rank = 0; rank < description.value().world_size; ++rank) {
    auto records = records_of(folder, rank, description.value().world_size);
    if (!records) return records.errors();
    outcome.ranks.push_back(std::move(records.value()));
  }
  return outcome;
}

Expected<RecordedHashes> read_recorded_hashes(const std::string& folder) {
  const auto description = describe(folder);
  if (!description) return description.errors();
  const Description& said = description.value();
  RecordedHashes recording{
      folder, said.world_size, said.hash_every, said.hash_version, said.tensors, {}};
  for (int64_t number = 0; number < recording.world_size; ++number) {
    const auto records = records_of(folder, number, said.world_size);
    if (!records) return records.errors();
    RecordedRank rank;
    const std::string path = fmt::format("{}/rank-{}.hashes", folder, number);
    const InputErrors errors = read_json_lines(
        path, "line of hashes", {kResultBytesMost},
        [&](const Json& line) { return take_hashes(line, said.hash_every, &rank); });
    if (!errors.empty()) return errors;
    add_records(records.value(), &rank);
    // The end of a step is recorded before it is hashed.
    const int64_t newest = rank.end              ? rank.end->step
                           : rank.hashed.empty() ? 0
                                                 : rank.hashed.back().step;
    if (newest > rank.last_step)
      return refused_recording(path, fmt::format("has hashes of step {}, and the rank's records "
                                                 "end after step {}",
                                                 newest, rank.last_step));
    recording.ranks.push_back(std::move(rank));
  }
  return recording;
}

std::string recorded_tensors_path(const std::string& folder, std::optional<int64_t> step) {
  return step ? fmt::format("{}/rank-0.step-{}.pt", folder, *step) : folder + "/rank-0.end.pt";
}

namespace {

using How = RecordedEnd::How;
using InVain = RecordedEnd::Meeting;

// How far a rank is in its loop: phases that it has begun in its newest step.
struct Position {
  int64_t step = 0, phases = 0;
  Phase phase{};
  int64_t since_ns = 0;
  bool operator<(const Position& other) const {
    return std::pair(step, phases) < std::pair(other.step, other.phases);
  }
};

struct Arrival {
  int64_t time_ns = 0, step = 0, bucket = -1;
  Phase phase{};
};

struct RankStory {
  RecordedEnd::Rank end;
  std::map<uint32_t, Arrival> arrivals;  // by sequence
  std::map<uint32_t, int64_t> ends;
  std::vector<Position> positions;  // in the order of time
  int64_t longest_step_ns = 0;
  uint32_t first_sequence = 0;  // that is not known to have been dropped
};

// The recorder of hash version 1 said that a run had finished however its process exited: who had
// entered a collective that never ended, in a step that never did, had given up.
void read_events(const RankRecords& records, RankStory* story) {
  std::optional<int64_t> finished_ns;
  int64_t step_begin_ns = 0;
  for (const Event& event : records.events) {
    story->end.last_ns = std::max(story->end.last_ns, event.time_ns);
    story->end.step = event.step;
    story->end.phase = static_cast<Phase>(event.phase);
    switch (static_cast<EventKind>(event.kind)) {
      case EventKind::phase_begin: {
        Position next{event.step, 1, static_cast<Phase>(event.phase), event.time_ns};
        if (!story->positions.empty() && story->positions.back().step == next.step)
          next.phases = story->positions.back().phases + 1;
        else
          step_begin_ns = event.time_ns;
        story->positions.push_back(next);
        break;
      }
      case EventKind::arrival:
        story->arrivals[event.sequence] = {event.time_ns, event.step, event.subject,
                                           static_cast<Phase>(event.phase)};
        break;
      case EventKind::end:
        story->ends[event.sequence] = event.time_ns;
        break;
      case EventKind::step_end:
        story->end.last_step = std::max<int64_t>(story->end.last_step, event.step);
        if (step_begin_ns > 0)
          story->longest_step_ns = std::max(story->longest_step_ns, event.time_ns - step_begin_ns);
        break;
      case EventKind::error:
        if (!story->end.error_ns) story->end.error_ns = event.time_ns;
        break;
      case EventKind::finished:
        finished_ns = event.time_ns;
        break;
      default:
        break;
    }
  }
  const bool inside = std::any_of(story->arrivals.begin(), story->arrivals.end(),
                                  [&](const auto& a) { return !story->ends.contains(a.first); });
  const bool amid_a_step =
      !story->positions.empty() && story->positions.back().step > story->end.last_step;
  if (finished_ns && inside && amid_a_step && !story->end.error_ns)
    story->end.error_ns = finished_ns;
  story->end.how = story->end.error_ns ? How::error : finished_ns ? How::finished : How::cut;
  if (records.dropped > 0)
    story->first_sequence = story->arrivals.empty() ? UINT32_MAX : story->arrivals.begin()->first;
}

class EndFinder {
 public:
  explicit EndFinder(const RunOutcome& outcome) {
    for (const RankRecords& records : outcome.ranks) read_events(records, &stories_.emplace_back());
    for (const RankStory& story : stories_) {
      if (story.end.error_ns && (!gave_up_ns_ || *story.end.error_ns < *gave_up_ns_))
        gave_up_ns_ = story.end.error_ns;
      longest_step_ns_ = std::max(longest_step_ns_, story.longest_step_ns);
    }
  }

  RecordedEnd find() {
    RecordedEnd end;
    for (const RankStory& story : stories_) end.ranks.push_back(story.end);
    const auto least =
        std::min_element(end.ranks.begin(), end.ranks.end(),
                         [](const auto& a, const auto& b) { return a.last_step < b.last_step; });
    if (least == end.ranks.end()) return end;
    end.last_whole_step = least->last_step;
    end.meeting = collective_in_vain();
    if (!end.meeting && gave_up_ns_) end.meeting = phase_in_vain();
    const bool finished = std::all_of(end.ranks.begin(), end.ranks.end(), [&](const auto& rank) {
      return rank.how == How::finished && rank.last_step == least->last_step;
    });
    const bool uneven = std::all_of(end.ranks.begin(), end.ranks.end(),
                                    [](const auto& rank) { return rank.how == How::finished; });
    if (end.meeting || gave_up_ns_)
      end.kind = RecordedEnd::Kind::failed;
    else if (!finished)
      end.kind = uneven ? RecordedEnd::Kind::failed : RecordedEnd::Kind::unfinished;
    if (!end.meeting) end.failed_first = first_error();
    return end;
  }

 private:
  size_t world() const { return stories_.size(); }

  std::optional<int64_t> first_error() const {
    for (size_t rank = 0; rank < world(); ++rank)
      if (gave_up_ns_ && stories_[rank].end.error_ns == gave_up_ns_)
        return static_cast<int64_t>(rank);
    return std::nullopt;
  }
  bool in_time(int64_t time_ns) const { return !gave_up_ns_ || time_ns <= *gave_up_ns_; }

  // The first collective that some ranks entered in time and others did not.
  std::optional<InVain> collective_in_vain() const {
    uint32_t first = 0;
    std::map<uint32_t, const Arrival*> known;
    for (const RankStory& story : stories_) {
      first = std::max(first, story.first_sequence);
      for (const auto& [sequence, arrival] : story.arrivals)
        if (in_time(arrival.time_ns)) known.try_emplace(sequence, &arrival);
    }
    for (const auto& [sequence, arrival] : known) {
      if (sequence < first) continue;
      InVain meeting{arrival->step, arrival->phase, std::nullopt, {}, {}, {}, 0, 0};
      if (arrival->bucket >= 0) meeting.bucket = arrival->bucket;
      int64_t first_ns = INT64_MAX, last_ns = 0;
      bool ended = false;
      for (size_t rank = 0; rank < world(); ++rank) {
        const auto own = stories_[rank].arrivals.find(sequence);
        ended = ended || stories_[rank].ends.contains(sequence);
        if (own != stories_[rank].arrivals.end()) last_ns = std::max(last_ns, own->second.time_ns);
        if (own == stories_[rank].arrivals.end()) {
          meeting.absent.push_back(static_cast<int64_t>(rank));
        } else if (!in_time(own->second.time_ns)) {
          meeting.late.push_back(static_cast<int64_t>(rank));
        } else {
          meeting.waited.push_back(static_cast<int64_t>(rank));
          first_ns = std::min(first_ns, own->second.time_ns);
        }
      }
      if (meeting.absent.empty() && meeting.late.empty()) {
        if (ended || gave_up_ns_ || !came_far_apart(sequence, &meeting)) continue;
        return meeting;
      }
      return settled(std::move(meeting), first_ns, last_ns);
    }
    return std::nullopt;
  }

  // All of them entered it, it ended on nobody, and nobody said why: who came long after the others
  // came too late for them.
  bool came_far_apart(uint32_t sequence, InVain* meeting) const {
    std::vector<std::pair<int64_t, int64_t>> times;
    for (size_t rank = 0; rank < world(); ++rank)
      times.emplace_back(stories_[rank].arrivals.at(sequence).time_ns, static_cast<int64_t>(rank));
    std::sort(times.begin(), times.end());
    if (times.size() < 2 || times.back().first - times[times.size() - 2].first < patience_ns())
      return false;
    meeting->late = {times.back().second};
    std::erase(meeting->waited, times.back().second);
    meeting->late_ns = times.back().first - times.front().first;
    return true;
  }

  // So long nobody waits in a run that is well.
  int64_t patience_ns() const {
    constexpr int64_t kLeast = 500'000'000;
    return std::max(kLeast, 2 * longest_step_ns_);
  }

  // Where some never came: those of them that were dead when the first rank gave up, if any were;
  // who was late then had been waiting as well. Where all came, only the error of who had waited
  // long is of their making.
  std::optional<InVain> settled(InVain meeting, int64_t first_ns, int64_t last_ns) const {
    if (gave_up_ns_) meeting.waited_ns = std::max<int64_t>(0, *gave_up_ns_ - first_ns);
    if (!meeting.absent.empty()) {
      const auto alive = [&](int64_t rank) {
        const RecordedEnd::Rank& end = stories_[static_cast<size_t>(rank)].end;
        return gave_up_ns_ && end.last_ns > *gave_up_ns_;
      };
      std::vector<int64_t> dead = meeting.absent;
      std::erase_if(dead, alive);
      if (!dead.empty()) meeting.absent = dead;
      meeting.late.clear();
      return meeting;
    }
    meeting.late_ns = last_ns - first_ns;
    if (meeting.waited_ns < patience_ns()) return std::nullopt;
    return meeting;
  }

  Position position_in_time(const RankStory& story) const {
    Position at;
    for (const Position& position : story.positions)
      if (in_time(position.since_ns)) at = position;
    return at;
  }

  // Not in a bucket's collective: whoever failed first was further in its loop than others are, and
  // had waited there, or one of them has died.
  std::optional<InVain> phase_in_vain() const {
    const auto failed = static_cast<size_t>(first_error().value_or(0));
    const Position there = position_in_time(stories_[failed]);
    InVain meeting{there.step, there.phase, std::nullopt, {}, {}, {}, 0, 0};
    meeting.waited_ns = *gave_up_ns_ - there.since_ns;
    for (size_t rank = 0; rank < world(); ++rank) {
      const RankStory& story = stories_[rank];
      if (!(position_in_time(story) < there)) {
        meeting.waited.push_back(static_cast<int64_t>(rank));
        continue;
      }
      const auto came = std::find_if(story.positions.begin(), story.positions.end(),
                                     [&](const Position& p) { return !(p < there); });
      if (came != story.positions.end()) {
        meeting.late.push_back(static_cast<int64_t>(rank));
        meeting.late_ns = std::max(meeting.late_ns, came->since_ns - there.since_ns);
      } else if (story.end.how == How::cut && story.end.last_ns <= *gave_up_ns_) {
        meeting.absent.push_back(static_cast<int64_t>(rank));
      }
    }
    if (!meeting.absent.empty()) {
      meeting.late.clear();
      return meeting;
    }
    if (meeting.late.empty() || meeting.waited_ns < patience_ns()) return std::nullopt;
    return meeting;
  }

  std::vector<RankStory> stories_;
  std::optional<int64_t> gave_up_ns_;  // the first error
  int64_t longest_step_ns_ = 0;
};

}  // namespace

RecordedEnd end_of_recording(const RunOutcome& outcome) { return EndFinder(outcome).find(); }

RunOutcome until_step(RunOutcome outcome, int64_t step) {
  for (RankRecords& records : outcome.ranks)
    std::erase_if(records.events, [&](const Event& event) { return event.step > step; });
  return outcome;
}

}  // namespace lockstep
