#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "sim/tools/explain/job_attribution.h"
#include "sim/tools/explain/log_lines.h"

namespace lockstep {

// What a stranger's job printed, and whom that proves guilty: nobody, where it is to stay
// undecided.
struct PublicLog {
  const char* thread;
  std::string text;
  RankSet guilty = {};
};

inline void add_log(JobEvidence* job, const std::string& text, const std::string& file = "job.log",
                    int64_t rank = -1) {
  LogReader reader(file, rank);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line); reader.next_line()) reader.take(line);
  for (LogEvent& event : reader.finish()) job->events.push_back(std::move(event));
  job->logged.insert(reader.ranks().begin(), reader.ranks().end());
  ++job->logs;
}

inline JobEvidence evidence_of(const std::string& text) {
  JobEvidence job;
  add_log(&job, text);
  return job;
}

inline void expect_as_written(const std::vector<PublicLog>& logs) {
  for (const PublicLog& log : logs) {
    const FlightFinding found = attribute_job(evidence_of(log.text));
    EXPECT_EQ(found.guilty, log.guilty) << log.thread;
    EXPECT_EQ(found.decided, !log.guilty.empty()) << log.thread;
    EXPECT_EQ(found.missing.empty(), found.decided) << log.thread;
    for (const int64_t rank : log.guilty) EXPECT_FALSE(found.victims.contains(rank)) << log.thread;
  }
}

}  // namespace lockstep
