#include <filesystem>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/job.h"

// What a member of a job says after it has come in: only its own ranks' ends, files and keys count.
namespace {

using namespace lockstep;  // NOLINT

void check_outcome(fuzz::Job* job) {
  const RunOutcome outcome = job->coordinator().take_outcome();
  for (const ProcessEnd& end : outcome.ends)
    fuzz::promised(end.rank != 0 || end.lost, "nobody says how another's rank has ended");
  for (const auto& entry : std::filesystem::directory_iterator(fuzz::folder())) {
    const std::string name = entry.path().filename().string();
    fuzz::promised(name.starts_with("rank-1.") || name == "ends.json",
                   "a member leaves files of its own ranks alone");
    std::filesystem::remove(entry.path());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Job job;
  Wire first = job.join(0);
  Wire second = job.join(1);
  fuzz::promised(first.is_open() && second.is_open(), "who belongs there comes in");
  job.begin_run();
  for (const Wire::Message& message : fuzz::messages_of(fuzz::text_of(data, size))) {
    if (!second.send(message)) break;
    job.turn();
  }
  Wire::Message answer;
  while (second.receive(&answer) == Channel::Got::message) {
  }
  first.send({"get", "1", "hosts"});
  job.turn();
  fuzz::promised(first.receive(&answer) == Channel::Got::message, "the others are served");
  check_outcome(&job);
  return 0;
}
