#include <sys/socket.h>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/job.h"

// What a stranger says at the port of a job: bytes as they are, and messages well made of the same
// lines. Nobody joins by it, nobody is refused by name, and those who belong come in afterwards.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static fuzz::Job job;
  static int64_t tried = 0;
  const std::string missing = job.coordinator().missing_ranks();
  const UniqueFd raw = job.connect();
  job.turn();
  (void)!::send(raw.get(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  Wire well_made(job.connect());
  for (const Wire::Message& message : fuzz::messages_of(fuzz::text_of(data, size)))
    well_made.send(message);
  job.turn();
  fuzz::promised(job.coordinator().missing_ranks() == missing, "no stranger joins");
  fuzz::promised(job.coordinator().problem().empty(), "no stranger ends a job");
  well_made.close();
  if (++tried % 1000 != 0) return 0;
  fuzz::Job other;
  fuzz::promised(other.join(0).is_open(), "who belongs there comes in");
  return 0;
}
