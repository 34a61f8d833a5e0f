#include "sim/tools/explain/log_source.h"
#include "tests/fuzz/explained.h"

// Text logs of a job: one of several ranks, and the same as rank 1's own.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static fuzz::MemoryFile file;
  const std::string path = file.holding(fuzz::text_of(data, size));
  JobEvidence job;
  for (const int64_t rank : {-1, 1}) {
    auto log = read_log(path, rank);
    if (!log) {
      fuzz::check_errors(log.errors());
      return 0;
    }
    fuzz::promised(log.value().events.size() <= size, "an event is of a line");
    ++job.logs;
    job.logged.insert(log.value().ranks.begin(), log.value().ranks.end());
    for (LogEvent& event : log.value().events) job.events.push_back(std::move(event));
    fuzz::check_explained(job);
  }
  return 0;
}
