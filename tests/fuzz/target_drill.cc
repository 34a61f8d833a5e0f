#include "sim/tools/program/drill.h"
#include "tests/fuzz/fuzz.h"

// What the agent leaves of one step, operator by operator: the same of two ranks and of one device.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;  // NOLINT
  const std::string path = fuzz::folder() + "/drill-0.jsonl";
  fuzz::leave(path, std::string(fuzz::text_of(data, size)));
  const auto rank = read_drill_rank(path);
  if (!rank) {
    fuzz::check_errors(rank.errors());
    return 0;
  }
  DrillFacts facts;
  facts.ranks = {rank.value(), rank.value()};
  facts.one = rank.value();
  facts.steps.resize(2);
  facts.step = 1;
  fuzz::promised(!sentence_of(judge_drill(facts)).empty(), "a drill ends in a sentence");
  return 0;
}
