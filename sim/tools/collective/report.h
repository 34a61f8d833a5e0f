#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "sim/report/ci/test_report.h"
#include "sim/report/machine.h"
#include "sim/report/text_style.h"
#include "sim/sweep/statistics.h"
#include "sim/tools/collective/ranks.h"
#include "sim/tools/collective/spec.h"

namespace lockstep {

// One communicator at one size, all ranks together.
struct CollectiveRow {
  size_t group = 0;               // place in spec.groups
  int64_t bytes = 0;              // S of the formulas: of the whole
  int64_t count = 0;              // elements that a rank passes: of its part where ranks have parts
  Estimate time_ns;               // median of the iterations, with its 95 % interval
  double algbw_gb_s = 0;          // S / time, 10^9 bytes a second
  double busbw_gb_s = 0;          // algbw x bus_factor()
  int64_t wrong = 0;              // elements of all ranks in all iterations
  int64_t results = 0;            // tensors that were compared bit for bit
  std::vector<int64_t> times_ns;  // of the iterations, in order
};

struct CollectiveResult {
  std::vector<CollectiveRow> rows;  // by communicator, then size
  int64_t wrong = 0, results = 0;
  // An element of rank 0 was damaged on purpose, once: has anybody seen it?
  ControlVerdict control = ControlVerdict::not_run;
};

// Rows that every rank has finished. An iteration takes from when the last rank has entered the
// collective to when it has ended on all: what the glossary calls transfer.
CollectiveResult collective_result(const CollectiveSpec& spec, const std::vector<RankFile>& ranks);

// The mean of busbw over the sizes of a communicator, as nccl-tests prints it last; 0 without any.
double average_busbw(const CollectiveResult& result, size_t group);

// All that one `lockstep collective` has to say.
struct CollectiveDocument {
  CollectiveSpec spec;
  Machine machine;
  Libraries libraries;
  CollectiveResult result;
  std::string broken;  // what broke down; empty: nothing
  int signal = 0;      // that interrupted it
  int64_t duration_ms = 0;
  Verdict verdict = Verdict::inconclusive;
  int exit_code = 0;
};

// Fills in what follows from the rest: verdict and exit code. Wrong elements fail it; without its
// control, whole, or measured to the end it is inconclusive.
void conclude(CollectiveDocument* document);

// Head, one line a communicator and size with the columns of nccl-tests, the answer last.
std::string collective_text(const CollectiveDocument& document, const Style& style);
std::string collective_answer(const CollectiveDocument& document);
std::string collective_csv(const CollectiveDocument& document);
// One case a communicator and size.
TestReport test_report(const CollectiveDocument& document);

// scenarios/collective_schema.json
nlohmann::ordered_json as_json(const CollectiveDocument& document);

}  // namespace lockstep
