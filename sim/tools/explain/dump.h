#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"

namespace lockstep {

// What PyTorch's flight recorder kept of one rank (schema 1.4 to 2.x), typed.

struct FlightEntry {
  int64_t record = 0;
  int64_t sequence = 0;  // within its group, of collectives; of others that of the one before
  int64_t point_to_point_sequence = 0;
  std::string group;  // its name
  std::string operation;
  // As JSON, to be compared: of its inputs, and behind "->" of its outputs where they differ.
  std::string sizes, dtypes;
  int64_t created_ns = 0;
  int64_t timeout_ms = 0;
  // From its begin on the GPU to its end, and between the recorder's looks that saw these; -1: not
  // told.
  int64_t ran_ns = -1, seen_ns = -1;
  bool point_to_point = false;
  bool sends = false;       // of a send or receive: which
  int64_t own_number = -1;  // and the rank's and its peer's number within the group; -1: not told
  int64_t peer = -1;
  // Sends and receives of the rank in its group before it that Gloo counts and does not record.
  int64_t unrecorded = 0;
  bool gloo = false;       // or another library of which the recorder does not see what completed
  bool started = false;    // seen to run on its GPU; said only where the job times its calls
  bool done = false;       // completed; Gloo says this of time-outs, too
  bool comparable = true;  // all of it is here: operation, sizes and dtypes are the rank's

  bool operator==(const FlightEntry&) const = default;
};

struct FlightStatus {
  int64_t enqueued = -1, completed = -1;

  bool operator==(const FlightStatus&) const = default;
};

// In the group's order. All dumps of a job name the same groups: a list that is there already is
// shared.
using RankList = std::shared_ptr<const std::vector<int64_t>>;
using RankLists = std::map<std::string, RankList, std::less<>>;  // by their text

struct FlightGroup {
  std::string description;
  RankList ranks;  // null where the dump does not say (Gloo)

  bool operator==(const FlightGroup&) const = default;
};

struct FlightDump {
  int64_t rank = -1;
  std::string file;
  bool from_log = false;                      // only what a text log says: part of its groups
  int64_t ranks_at_least = 0;                 // that the job has
  bool tells_starts = false;                  // of what began on its GPU
  bool status_differs = false;                // its status counts otherwise than entries do
  bool lost_numbers = false;                  // its calls cannot be told apart by group
  bool called_nothing = false;                // it has groups, and no call was recorded in any
  std::map<std::string, FlightGroup> groups;  // by name
  std::map<std::string, FlightStatus> status;
  std::map<int64_t, FlightStatus> status_by_id;  // of ids whose group's name is not known here
  std::vector<FlightEntry> entries;              // oldest first, by record
};

// One file: pickle or JSON, by its content; the rank is the number at the end of the file's name
// (before .json). Bad input: anything else, with the place.
Expected<FlightDump> read_flight_dump(const std::string& path, RankLists* lists);
// Of the content of such a file.
Expected<FlightDump> flight_dump_of(const std::string& bytes, const std::string& path,
                                    RankLists* lists);

}  // namespace lockstep
