#include "sim/tools/program/judge.h"
#include "sim/tools/program/recording.h"
#include "tests/fuzz/fuzz.h"

// What the agent in a user's program leaves of a rank, judged beside a copy of itself.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static fuzz::MemoryFile file;
  const auto read = read_program_rank(file.holding(fuzz::text_of(data, size)));
  if (!read) {
    fuzz::check_errors(read.errors());
    return 0;
  }
  const std::vector<ProgramRank> ranks = {read.value(), read.value()};
  const ProgramFinding replicas = judge_replicas(ranks);
  fuzz::promised(replicas.verdict != Verdict::fail, "a rank is its own replica");
  (void)judge_one_device(ranks, read.value());
  (void)replica_control_fails(ranks);
  (void)one_device_control_fails(ranks, read.value());
  return 0;
}
