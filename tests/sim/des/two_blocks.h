#pragma once

#include <string>
#include <vector>

#include "scenarios/parse/suite.h"
#include "sim/des/job.h"
#include "sim/plan/plan.h"

namespace lockstep {

// Jobs whose ranks hold parameters in parts.

// Two ranks, 1 ns a byte: a unit of 2,000 bytes takes 1 us to gather, and as long to reduce. Two
// blocks of 2 us forward and 4 us backward each; the root has nothing.
inline Job two_blocks() {
  Job job;
  job.ranks = 2;
  job.steps = 2;
  job.forward_ns = 4000;
  job.backward_ns = 8000;
  job.cost.link = {0, 1'000'000, 0};
  ParameterShards parts;
  parts.units = {{0, 0, 0, 0}, {2000, 0, 4000, 8000}, {2000, 2000, 0, 4000}};
  job.parts = parts;
  job.settled = {{0, 2000, 4000, 0}, {1, 2000, 8000, 0}, {2, 0, 8000, 0}};
  job.first_step = job.settled;
  return job;
}

// Plans of a GPT of two blocks, with what `more` sets: another reducer, say.
inline Expected<std::vector<RunPlan>> gpt_in_units(const std::vector<std::string>& more,
                                                   bool only = true) {
  std::vector<std::string> sets = {
      R"(/reducer={"kind": "fsdp"})",
      R"(/model={"kind": "gpt", "vocabulary": 61, "context": 12, "layers": 2, "heads": 4, "width": 32})",
      R"(/data={"kind": "tokens", "samples": 24, "vocabulary": 61, "length": 12})",
      "/batch_size=12"};
  sets.insert(sets.end(), more.begin(), more.end());
  const auto file =
      load_scenario_file(LOCKSTEP_SOURCE_DIR "/scenarios/stragglers/emulated_resnet50.json",
                         {.sets = sets, .seed = {}});
  if (!file) return file.errors();
  return make_plans(file.value(), {.only = only});
}

}  // namespace lockstep
