#pragma once

#include <cstdint>
#include <string>

#include "sim/calibrate/row_simulator.h"
#include "sim/des/cost.h"

namespace lockstep {

// Why a published row takes as long as it does.
//
// By how much the row is longer than compute and collectives alone has several explanations, and
// one number cannot tell them apart. Each is fitted by itself, so that it gives the row exactly:
enum class Excess {
  reducer,     // what a reducer costs the compute stream for each parameter, on one rank too
  every_step,  // what a step of several ranks takes beside (sync_ms)
  link,        // links are slower than the machine says, by a factor of kMostSlower at most
  latency,     // messages take longer than it says, by a factor of kLatencyRange at most
  contention,  // compute is slower while a collective is under way (overlap_slowdown)
  compute      // of a row without a longer compute row: compute itself
};
// Of compute that no row shows alone nobody knows how much of it links are: it is fitted with links
// as the machine says, with such that take nothing to speak of, and such that are kMostSlower; and
// with collectives that backward hides, and such that it does not (kNotHidden).
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
// A message takes between this part of what the machine says and so many times as long: NCCL's own
// model of itself has 0.6 to 3.4 us within a host and 2.7 to 14 us between hosts, by its protocol
// (hwLat in src/graph/tuning.cc). A data sheet says nothing of it.
inline constexpr double kLatencyRange = 4;
// So many times as long does compute take more under a collective that backward does not hide: it
// stands still, to speak of. Whoever clips gradients, or sums them when backward is over, hides
// nothing; nor do kernels that take turns on an accelerator.
inline constexpr double kNotHidden = 16;
// As much at most between the explanations: compute at a quarter of its speed. Beyond that
// accelerators do not share, they take turns.
inline constexpr double kMostContention = 3;

// What each step of several ranks takes beside at most, as a part of one pass of the fitted row,
// where no row shows compute alone: the two-rank rows of PyTorch's own tables are 3 to 4 % longer
// than those of one rank.
inline constexpr double kMostBeside = 0.04;

struct RowExplanation {
  Excess excess = Excess::compute;
  double bucket_us = 0;
  double value = 0;      // us a parameter, ms a step, factor of links, messages, or of compute
  double links = 1;      // beside the excess: so many times as slow as the machine says
  double spread = 0;     // of ranks' speeds
  double beside_ms = 0;  // with excess compute: each step of several ranks takes so much beside
  double messages = 1;   // so many times the latency that the machine says
  double overlap = 0;    // compute takes so many times as long more under a collective
  bool across = true;    // links between hosts are as slow as those within: the row goes over them

  // Is the network as the machine says, but for what explains the row?
  bool as_said() const { return links == 1 && messages == 1 && overlap == 0; }
};
std::string to_text(const RowExplanation& explanation);

// Links, and what the ranks of a host share.
void slow_links(double factor, bool across, MachineModel* machine);
// On the machine of `guess`.
void apply(const RowExplanation& explanation, Guess* guess);

}  // namespace lockstep
