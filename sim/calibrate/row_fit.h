#pragma once

#include <functional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/calibrate/published_table.h"
#include "sim/calibrate/row_explanation.h"
#include "sim/des/machine_model.h"
#include "sim/plan/plan.h"

namespace lockstep {

// A machine fitted to one published row, of a scenario's step on a machine whose links are known:
// between the explanations of how long the row takes (row_explanation.h).

// The row in virtual time on the machine between the explanations, and how far these are apart.
// What is not in compute and collectives may grow with the ranks: `high` has it in proportion to
// log2 of them, `low` in proportion to the others of a rank where these are fewer than the row's.
struct PredictedRow {
  PublishedRow row;
  double ms = 0, low = 0, high = 0;
};

struct RowFit {
  MachineModel machine;  // between the explanations; accuracy: how far they are apart
  double forward_ms = 0, backward_ms = 0;  // of compute as it was fitted
  std::vector<RowExplanation> explanations;
  std::vector<PredictedRow> rows;  // as the table's, without that of compute alone
  std::vector<std::string> notes;
  InputErrors warnings;   // of rows that contradict each other, or the machine
  bool emulated = false;  // the scenario's compute, which no machine file says
};

// Before each part of the work, what it is.
using RowProgress = std::function<void(const std::string&)>;

// Bad input: what virtual time does not take, caps where there are none, a row that no explanation
// gives.
Expected<RowFit> fit_row(const RunPlan& plan, const MachineModel& machine,
                         const PublishedTable& table, const RowProgress& progress = {});

}  // namespace lockstep
