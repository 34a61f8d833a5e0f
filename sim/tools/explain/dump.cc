#include "sim/tools/explain/dump.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <string_view>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "sim/tools/explain/dump_pickle.h"
#include "sim/tools/explain/file_rank.h"
#include "sim/tools/explain/settle.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDumpBytesMost = int64_t{128} << 20;
constexpr int64_t kTimeoutMsMost = 1'000'000'000'000;  // decades: in nanoseconds it is a number too
constexpr const char* kExpected =
    "a flight recorder dump of PyTorch 2.3 or newer (pickle or JSON, version 1.4 to 2.x)";

// Of PyTorch 2.3 on, whose minor numbers only add fields; a third major number may mean other
// things by the same names.
bool is_known_version(const std::string& version) {
  const auto minor =
      number_in<int64_t>(std::string_view(version).substr(std::min<size_t>(2, version.size())));
  if (!minor) return false;
  return (version.starts_with("1.") && *minor >= 4 && *minor <= 9) ||
         (version.starts_with("2.") && *minor >= 0);
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// A number, or its text: JSON has some so, and what people make of it all.
int64_t number_of(const Json& value) {
  if (value.is_string())
    if (const auto number = number_in<int64_t>(value.get<std::string>())) return *number;
  return whole_number(value);
}

int64_t number_of(const Json& object, const char* key, int64_t otherwise) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? otherwise : number_of(*found);
}

RankList ranks_of(const std::string& text, RankLists* lists) {
  if (const auto found = lists->find(text); found != lists->end()) return found->second;
  const Json list = json_or_discarded(text);
  if (!list.is_array()) return nullptr;
  auto ranks = std::make_shared<std::vector<int64_t>>();
  for (const Json& rank : list) ranks->push_back(number_of(rank));
  return lists->emplace(text, std::move(ranks)).first->second;
}

bool bool_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return false;
  if (found->is_boolean()) return found->get<bool>();
  return *found == "true" || *found == "True" || *found == 1;
}

std::string dumped(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end()
             ? ""
             : found->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Of inputs and outputs; empty where one is not told, and so nothing to compare with.
std::string both(const Json& object, const char* inputs, const char* outputs) {
  std::string in = dumped(object, inputs);
  const std::string out = dumped(object, outputs);
  if (in.empty() || out.empty()) return "";
  return out == in ? in : in + "->" + out;
}

// What wrote an entry, by its name, "nccl:all_reduce".
struct Recorder {
  std::string library;
  // A recorder of its own, which names the library as the group's description, too, counts the
  // calls of all groups in one, and retires what completed, whatever the state says.
  bool torchcomms = false;

  // NCCL's states, and those of its kin (nccl2, rccl, hccl, xccl), are kept up to date: what is not
  // completed, and no longer waited for, timed out.
  bool keeps_states() const { return !torchcomms && library.find("ccl") != std::string::npos; }
  // c10d's hook, which records for libraries without a recorder: its status counts all calls, from
  // 0, also those that are in no dump.
  bool is_hook() const {
    static constexpr std::array<std::string_view, 6> kOwn = {"",     "nccl", "gloo",
                                                             "xccl", "hccl", "rccl"};
    return torchcomms || std::find(kOwn.begin(), kOwn.end(), library) == kOwn.end();
  }
};

bool is_done(const Json& from, const Recorder& recorder) {
  const std::string state = text_of(from, "state");
  return state == "completed" ||
         (bool_of(from, "retired") && (!recorder.keeps_states() || state.empty()));
}

// Of Gloo, and of libraries of which c10d's hook is not told when a call completes.
bool is_seen_issued_only(const Json& from, const Recorder& recorder) {
  if (recorder.torchcomms) return false;
  if (recorder.library == "gloo") return true;
  return recorder.is_hook() && !recorder.keeps_states() && bool_of(from, "retired") &&
         text_of(from, "state") == "scheduled";
}

// "send 0->1", "recv 1<-0", by numbers within the group; "recv 1<-?" of any source.
void read_transfer(FlightEntry* entry) {
  const std::string name = entry->operation;
  entry->sends = name.starts_with("send");
  if (!entry->sends && !name.starts_with("recv ")) return;
  const std::string_view ends = std::string_view(name).substr(4);
  const size_t arrow = ends.find(entry->sends ? "->" : "<-");
  if (arrow == std::string_view::npos || !ends.starts_with(" ")) return;
  entry->operation.resize(4);
  const auto own = number_in<int64_t>(ends.substr(1, arrow - 1));
  const auto peer = number_in<int64_t>(ends.substr(arrow + 2));
  if (!own || !peer || *own < 0 || *peer < 0) return;
  entry->own_number = *own;
  entry->peer = *peer;
}

// Until PyTorch 2.3 one number counts collectives, sends and receives.
void read_sequences(const Json& from, const Recorder& recorder, FlightEntry* entry) {
  const bool by_name = entry->operation.starts_with("send") || entry->operation.starts_with("recv");
  if (from.contains("collective_seq_id")) {
    entry->sequence = number_of(from.at("collective_seq_id"));
    entry->point_to_point = bool_of(from, "is_p2p") || (recorder.torchcomms && by_name);
    entry->point_to_point_sequence = number_of(from, "p2p_seq_id", 0);
  } else {
    entry->sequence = number_of(from.at("seq_id"));
    entry->point_to_point = by_name;
  }
}

// A hook is told when a host queued a call, and not when a GPU came to it.
void read_runs(const Json& from, FlightEntry* entry) {
  constexpr double kLongestMs = 1e9;
  const auto ran = from.find("duration_ms");
  if (ran != from.end() && ran->is_number()) {
    const double ms = ran->get<double>();
    if (ms >= 0 && ms < kLongestMs) entry->ran_ns = static_cast<int64_t>(ms * 1e6);
  }
  const int64_t began = number_of(from, "time_discovered_started_ns", 0);
  const int64_t ended = number_of(from, "time_discovered_completed_ns", 0);
  if (began > 0 && ended >= began && static_cast<double>(ended - began) < kLongestMs * 1e6)
    entry->seen_ns = ended - began;
}

struct EntryOfId {
  FlightEntry entry;
  int64_t id = 0;
  std::string description;
  Recorder recorder;
};

EntryOfId entry_of(const Json& from) {
  EntryOfId found;
  FlightEntry& entry = found.entry;
  found.id = number_of(from, "pg_id", -1);
  const Json& group = from.at("process_group");
  entry.group = group.at(0).get<std::string>();
  found.description = group.at(1).get<std::string>();
  entry.record = number_of(from, "record_id", 0);
  const std::string name = from.at("profiling_name").get<std::string>();
  const size_t colon = name.find(':');
  Recorder& recorder = found.recorder;
  recorder.library = name.substr(0, colon == std::string::npos ? 0 : colon);
  recorder.torchcomms = !recorder.library.empty() && recorder.library == found.description;
  entry.gloo = is_seen_issued_only(from, recorder);
  entry.operation = colon == std::string::npos ? name : name.substr(colon + 1);
  read_sequences(from, recorder, &entry);
  if (entry.point_to_point) read_transfer(&entry);
  // Of all calls of the group; barriers that the recorder leaves out count in the sequence, too.
  if (recorder.library == "gloo" && !entry.point_to_point)
    entry.unrecorded = std::max<int64_t>(
        0, number_of(from, "op_id", entry.sequence) - std::max<int64_t>(0, entry.sequence));
  entry.sizes = both(from, "input_sizes", "output_sizes");
  entry.dtypes = both(from, "input_dtypes", "output_dtypes");
  entry.created_ns = number_of(from, "time_created_ns", 0);
  entry.timeout_ms = std::clamp(number_of(from, "timeout_ms", 0), int64_t{0}, kTimeoutMsMost);
  entry.done = is_done(from, recorder);
  if (!recorder.is_hook()) read_runs(from, &entry);
  entry.started =
      text_of(from, "state") == "started" || number_of(from, "time_discovered_started_ns", 0) > 0;
  return found;
}

// Ids count a process's own groups in the order in which they were made, as names that are numbers
// do for all: with as many of each, one order gives the other. An entry that says otherwise
// counts more.
std::map<int64_t, std::string> names_of_ids(const FlightDump& dump,
                                            const std::map<int64_t, std::string>& seen) {
  std::vector<std::pair<int64_t, std::string>> names;
  for (const auto& [name, group] : dump.groups)
    if (const auto number = number_in<int64_t>(name)) names.emplace_back(*number, name);
  if (names.size() != dump.groups.size() || names.size() != dump.status_by_id.size()) return seen;
  std::sort(names.begin(), names.end());
  std::map<int64_t, std::string> all;
  size_t next = 0;
  for (const auto& [id, status] : dump.status_by_id) all[id] = names[next++].second;
  for (const auto& [id, name] : seen)
    if (all[id] != name) return seen;
  return all;
}

// torchcomms' numbers count the calls of all groups of a process, so those of a group differ where
// ranks are in other groups. A ring that has lost calls does not tell how many were of which group.
void number_by_group(FlightDump* dump) {
  if (dump->entries.front().record > 0) {
    dump->lost_numbers = true;
    dump->entries.clear();
    return;
  }
  std::map<std::string, std::pair<int64_t, int64_t>> numbers;  // collectives, others
  for (FlightEntry& entry : dump->entries) {
    auto& [collectives, others] = numbers[entry.group];
    (entry.point_to_point ? others : collectives) += 1;
    entry.sequence = collectives;
    entry.point_to_point_sequence = others;
  }
}

FlightDump dump_of(const Json& document, RankLists* lists) {
  FlightDump dump;
  for (const auto& [key, group] : document.at("pg_config").items()) {
    // Gloo's dumps have the last group's numbers below an empty key.
    RankList ranks = ranks_of(text_of(group, "ranks"), lists);
    if (ranks)
      dump.ranks_at_least = std::max(dump.ranks_at_least, static_cast<int64_t>(ranks->size()));
    if (key.empty()) continue;
    dump.groups[key] = {text_of(group, "desc"), std::move(ranks)};
  }
  if (const auto found = document.find("pg_status"); found != document.end())
    for (const auto& [key, status] : found->items())
      if (const auto id = number_in<int64_t>(key)) {
        dump.status_by_id[*id] = {number_of(status.at("last_enqueued_collective")),
                                  number_of(status.at("last_completed_collective"))};
        dump.tells_starts |= number_of(status, "last_started_collective", -1) > 0;
      }
  std::map<int64_t, std::string> names;
  bool torchcomms = false;
  if (const auto found = document.find("entries"); found != document.end())
    for (const Json& from : *found) {
      EntryOfId read = entry_of(from);
      if (read.id >= 0) names[read.id] = read.entry.group;
      dump.tells_starts |= read.entry.started;
      torchcomms |= read.recorder.torchcomms;
      dump.status_differs |= read.recorder.is_hook();
      dump.groups.try_emplace(read.entry.group, FlightGroup{read.description, nullptr});
      dump.entries.push_back(std::move(read.entry));
    }
  std::stable_sort(dump.entries.begin(), dump.entries.end(),
                   [](const FlightEntry& a, const FlightEntry& b) { return a.record < b.record; });
  if (torchcomms) number_by_group(&dump);
  settle(&dump);
  const auto is_unused = [](const auto& status) { return status.second.enqueued < 0; };
  dump.called_nothing = dump.entries.empty() && !dump.lost_numbers && !dump.groups.empty() &&
                        document.contains("pg_status") &&
                        std::all_of(dump.status_by_id.begin(), dump.status_by_id.end(), is_unused);
  for (const auto& [id, name] : names_of_ids(dump, names))
    if (const auto status = dump.status_by_id.find(id); status != dump.status_by_id.end()) {
      dump.status[name] = status->second;
      dump.status_by_id.erase(status);
    }
  return dump;
}

}  // namespace

Expected<FlightDump> read_flight_dump(const std::string& path, RankLists* lists) {
  const auto text = read_foreign_file(path, kDumpBytesMost);
  if (!text) return text.errors();
  return flight_dump_of(text.value(), path, lists);
}

Expected<FlightDump> flight_dump_of(const std::string& bytes, const std::string& path,
                                    RankLists* lists) {
  if (static_cast<int64_t>(bytes.size()) > kDumpBytesMost)
    return file_error(path, fmt::format("more than {} bytes", kDumpBytesMost));
  const bool pickled = !bytes.empty() && static_cast<uint8_t>(bytes[0]) == 0x80;
  const auto document = pickled ? read_plain_pickle(bytes, path)
                                : parse_foreign_json(bytes, path, kExpected, JsonLimits{});
  if (!document) return document.errors();
  try {
    if (document.value().is_array())
      return file_error(path,
                        "is a list of calls as PyTorch 2.2 and older write it, which does not say "
                        "who is in a group",
                        kExpected);
    const std::string version = text_of(document.value(), "version");
    if (!is_known_version(version))
      return file_error(path, fmt::format("version \"{}\" of a dump", shortened(version)),
                        kExpected);
    FlightDump dump = dump_of(document.value(), lists);
    const auto rank = rank_of_dump(path);
    if (!rank)
      return file_error(path, "does not say which rank left it",
                        "a name that ends in the rank: _dump_3");
    dump.rank = *rank;
    dump.file = path;
    return dump;
  } catch (const nlohmann::json::exception& error) {
    return file_error(path, "is no such dump: " + problem_of(error), kExpected);
  }
}

}  // namespace lockstep
