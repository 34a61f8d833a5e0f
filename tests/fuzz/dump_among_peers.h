#pragma once

#include "tests/fuzz/explained.h"

namespace lockstep::fuzz {

// Rank `rank` of three waits in collective 4 of group "0".
inline FlightDump waiting_dump(int64_t rank) {
  FlightDump dump;
  dump.rank = rank;
  dump.groups["0"] = {"default_pg",
                      std::make_shared<std::vector<int64_t>>(std::vector<int64_t>{0, 1, 2})};
  dump.status["0"] = {4, 3};
  for (int64_t sequence = 1; sequence <= 4; ++sequence) {
    FlightEntry entry;
    entry.record = entry.sequence = sequence;
    entry.group = "0";
    entry.operation = "all_reduce";
    entry.sizes = "[[8]]";
    entry.dtypes = "[\"Float\"]";
    entry.created_ns = sequence * 1'000'000;
    entry.timeout_ms = 1000;
    entry.done = sequence < 4;
    dump.entries.push_back(std::move(entry));
  }
  return dump;
}

// A dump of rank 1, alone and beside two that wait.
inline void check_dump(const uint8_t* data, size_t size) {
  const std::string path = folder() + "/_dump_1";
  leave(path, text_of(data, size));
  RankLists lists;
  auto dump = read_flight_dump(path, &lists);
  if (!dump) return check_errors(dump.errors());
  JobEvidence job;
  job.dumps.push_back(dump.value());
  check_explained(job);
  job.dumps.insert(job.dumps.begin(), waiting_dump(0));
  job.dumps.push_back(waiting_dump(2));
  check_explained(job);
}

}  // namespace lockstep::fuzz
