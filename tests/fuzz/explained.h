#pragma once

#include "scenarios/base/text.h"
#include "sim/report/document.h"
#include "sim/tools/explain/job_attribution.h"
#include "sim/tools/explain/report.h"
#include "sim/tools/explain/reproduction.h"
#include "tests/fuzz/fuzz.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lockstep::fuzz {

// What `lockstep explain` does with evidence that was read, and what must hold of its answer.
inline void check_explained(const JobEvidence& job) {
  const FlightFinding found = attribute_job(job);
  const SourcesRead counts{static_cast<int64_t>(job.dumps.size()), job.logs};
  const std::string text = explain_text(found, counts);
  promised(text == printable_lines(text), "nothing in the text steers a terminal");
  (void)to_text(explain_json(found, counts, ""));
  (void)explain_report(found, counts, "logs");
  const Reproduction again = reproduce(found);
  if (again.scenario) (void)to_text(*again.scenario);
  promised(!again.scenario || !found.guilty.empty(), "a scenario is of somebody guilty");
  promised(found.decided || found.guilty.empty(), "nobody is guilty where it is undecided");
  promised(found.decided != !found.missing.empty(), "what is undecided says what is missing");
  for (const int64_t rank : found.guilty)
    promised(!found.victims.contains(rank), "nobody is guilty and a victim");
}

}  // namespace lockstep::fuzz
