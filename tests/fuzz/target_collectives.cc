#include <string>

#include "sim/tools/program/replay.h"
#include "tests/fuzz/fuzz.h"

// What the tap of a user's program leaves of two ranks' collectives: the same text of both.
namespace {

using namespace lockstep;  // NOLINT

std::string of_rank_1(std::string text) {
  const size_t at = text.find("\"rank\": 0");
  if (at != std::string::npos) text[at + 8] = '1';
  return text;
}

ProgramReplay replayed(const std::string& contributions) {
  for (const char* rank : {"0", "1"})
    fuzz::leave(fuzz::folder() + "/contributions-" + rank + ".bin", contributions);
  return replay_program(fuzz::folder(), 2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(fuzz::text_of(data, size));
  fuzz::leave(fuzz::folder() + "/collectives-0.jsonl", text);
  fuzz::leave(fuzz::folder() + "/collectives-1.jsonl", of_rank_1(text));
  const ProgramReplay zeros = replayed(std::string(4096, '\0'));
  fuzz::promised(!zeros.finding || zeros.finding->verdict != Verdict::fail, "zeros sum to zeros");
  fuzz::promised(!zeros.control_failed, "nothing can be flipped in zeros");
  (void)replayed(text);
  return 0;
}
