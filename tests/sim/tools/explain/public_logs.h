#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
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

inline JobEvidence evidence_of(const std::string& text) {
  JobEvidence job;
  LogReader reader("job.log", -1);
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
    reader.take(std::string_view(text).substr(begin, end - begin));
    reader.next_line();
    begin = end + 1;
  }
  job.events = reader.finish();
  job.logged = reader.ranks();
  job.logs = 1;
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
