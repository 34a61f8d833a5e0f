#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "sim/collective/result.h"
#include "sim/report/machine.h"
#include "sim/report/style.h"

namespace lockstep {

// All that one `lockstep collective` has to say.
struct CollectiveDocument {
  CollectiveSpec spec;
  Machine machine;
  Libraries libraries;
  CollectiveResult result;
  std::string broken;  // what broke down; empty: nothing
  int signal = 0;      // that interrupted it
  int64_t duration_ms = 0;
  std::string verdict;  // pass | fail | inconclusive
  int exit_code = 0;
};

// Fills in what follows from the rest: verdict and exit code. Wrong elements fail it; without its
// control, whole, or measured to the end it is inconclusive.
void conclude(CollectiveDocument* document);

// Head, one line a communicator and size with the columns of nccl-tests, the answer last.
std::string collective_text(const CollectiveDocument& document, const Style& style);
std::string collective_answer(const CollectiveDocument& document);
std::string collective_csv(const CollectiveDocument& document);
// scenarios/collective_schema.json
nlohmann::ordered_json as_json(const CollectiveDocument& document);

}  // namespace lockstep
