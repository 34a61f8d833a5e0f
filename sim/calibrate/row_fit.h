#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "sim/calibrate/published_table.h"
#include "sim/des/machine_model.h"
#include "sim/plan/plan.h"

namespace lockstep {

// A machine fitted to one published row, of a scenario's step on a machine whose links are known.
//
// By how much the row is longer than compute and collectives alone has several explanations, and
// one number cannot tell them apart. Each is fitted by itself, so that it gives the row exactly:
enum class Excess {
  reducer,     // what a reducer costs the compute stream for each parameter, on one rank too
  every_step,  // what a step of several ranks takes beside (sync_ms)
  link,        // links are slower than the machine says, by a factor of kMostSlower at most
  compute      // of a row without a longer compute row: compute itself
};
// Of compute that no row shows alone nobody knows how much of it links are: it is fitted with links
// as the machine says, with such that take nothing to speak of, and such of half the bandwidth.
// Each again with what a bucket costs the compute stream, where the machine does not say it:
// nothing, or this.
inline constexpr double kMostBucketUs = 100;
// What DDP's hooks cost the compute stream for a parameter at most: the one-rank rows of PyTorch's
// own tables (golden/data/published) are 12 to 35 us.
inline constexpr double kMostParameterUs = 50;
// How far ranks' speeds are spread where the machine does not say it: between nothing and twice
// this. Accelerators of one kind differ by 8 % between the whiskers of a box plot, 5.4 standard
// deviations of a normal (Sinha and others, "Not all GPUs are created equal", SC 2022).
inline constexpr double kRankSpread = 0.08 / 5.4;
inline constexpr double kMostSlower = 16;
// Links that no fitted row goes over, between hosts or at all, may be so many times slower than the
// machine's.
inline constexpr double kUnseenSlower = 2;

// What each step of several ranks takes beside at most, as a part of the fitted row, where no row
// shows compute alone: the two-rank rows of PyTorch's own tables are 3 to 4 % longer than those of
// one rank.
inline constexpr double kMostBeside = 0.04;

struct RowExplanation {
  Excess excess = Excess::compute;
  double bucket_us = 0;
  double value = 0;      // us a parameter, ms a step, factor of links, or of compute
  double links = 1;      // with excess compute: so many times as slow as the machine says
  double spread = 0;     // of ranks' speeds
  double beside_ms = 0;  // with excess compute: each step of several ranks takes so much beside
};
std::string to_text(const RowExplanation& explanation);

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
  bool emulated = false;  // the scenario's compute, which no machine file says
};

// Bad input: what virtual time does not take, caps where there are none, a row that no explanation
// gives.
Expected<RowFit> fit_row(const RunPlan& plan, const MachineModel& machine,
                         const PublishedTable& table);

}  // namespace lockstep
