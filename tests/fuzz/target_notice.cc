#include <filesystem>

#include "sim/join/rendezvous.h"
#include "sim/launch/executor.h"
#include "sim/launch/run_files.h"
#include "sim/tools/collective/ranks.h"
#include "tests/fuzz/fuzz.h"

// Small files by which processes of a job tell each other something: where rank 0 is, a rank's
// stack, its rows of `lockstep collective`, its log.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  static fuzz::MemoryFile file;
  const std::string& path = file.holding(fuzz::text_of(data, size));
  (void)read_stack(path);
  (void)log_tail(path, 20);
  for (const RankRow& row : read_rank_file(path).rows)
    fuzz::promised(row.begin_ns.size() == row.end_ns.size(), "each begin has an end");
  const std::string notice = fuzz::folder() + "/notice";
  fuzz::leave(notice, fuzz::text_of(data, size));
  Rendezvous rendezvous;
  rendezvous.kind = "file";
  rendezvous.path = notice;
  if (const auto read =
          make_notice_board(rendezvous, deadline_after(std::chrono::seconds(1)))->read())
    fuzz::promised(read->address.port > 0 && read->address.port < 65536, "a port");
  return 0;
}
