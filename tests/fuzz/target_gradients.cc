#include <string>

#include "sim/tools/compare/certificate.h"
#include "tests/fuzz/fuzz.h"

// What a user's program leaves of its gradients on two ranks: the same text and numbers of both.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  const std::string text(fuzz::text_of(data, size));
  std::string of_rank_1 = text;
  const size_t at = of_rank_1.find("\"rank\": 0");
  if (at != std::string::npos) of_rank_1[at + 8] = '1';
  for (const char* rank : {"0", "1"}) {
    const std::string path = fuzz::folder() + "/gradients-" + rank;
    fuzz::leave(path + ".jsonl", *rank == '0' ? text : of_rank_1);
    fuzz::leave(path + ".bin", text);
  }
  const auto log = read_gradient_log(fuzz::folder());
  if (!log) {
    fuzz::check_errors(log.errors());
    return 0;
  }
  const Certificate found = certify(log.value(), log.value());
  fuzz::promised(found.verdict != Verdict::fail || found.difference == RunDifference::replicas,
                 "a run differs in nothing from itself");
  return 0;
}
