#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "scenarios/base/verdict.h"
#include "sim/analysis/gradient_log.h"
#include "sim/tools/compare/addition_orders.h"

namespace lockstep {

// Rounding or bug? Two runs of one training that should agree, over other buckets, reducers or
// communicators: are they the same but for the order in which gradients were added over ranks?
//
// Step by step, as long as both went into it with the same weights, bit for bit: each rank's local
// gradients must have the same bits; each element of a reduced gradient either the same bits or, in
// both runs, bits that some order of addition of the local ones gives; and with the same reduced
// gradients the optimizer's update the same bits again. After a step whose reduced gradients
// differ, weights differ as well, unless one run follows the other (it takes that one's reduced
// gradients in each step): without that, the comparison ends there.

// In what the runs differ first that no order of addition explains.
enum class RunDifference : uint8_t {
  none,
  parameters,        // names, types or sizes
  start,             // weights before the first step
  local_gradient,    // of one rank, before anything is added
  missing_gradient,  // the optimizer was given it in one run alone
  reduction,         // no order of addition gives it
  clipping,          // other gradients came of it, or one run does not clip
  update,            // the optimizer made another thing of the same gradients
  replicas           // a rank holds other weights than rank 0 of the same run
};
const char* name_of(RunDifference difference);

// Why it is not known whether they agree.
enum class CertificateGap : uint8_t {
  none,
  other_world,        // the ranks' batches are others
  weights_apart,      // after `step`, whose gradients differ by their order, and none follows
  local_rounding,     // a rank's local gradient differs by rounding alone
  several_backwards,  // not explained, but accumulated over several backwards
  many_ranks,         // not explained, but not every order was tried
  stopped,            // a run recorded no more, by its own decision
  not_ended,          // a run broke off
  other_length,       // one has more steps
  no_control          // no differing element could be spoiled so that no order explains it
};
const char* name_of(CertificateGap gap);

struct GradientPlace {
  int64_t step = 0, rank = 0, element = 0;  // step from 1; rank of a local gradient
  std::string name = {};
  double a = 0, b = 0;  // the values there
};

struct Certificate {
  Verdict verdict = Verdict::inconclusive;
  RunDifference difference = RunDifference::none;
  CertificateGap gap = CertificateGap::none;
  GradientPlace place;                 // of the difference or the gap; step 0: of the whole run
  std::optional<GradientPlace> first;  // whose reduced gradient differs, explained or not
  int64_t world = 0, steps = 0, tensors = 0, elements = 0;  // compared; of reduced gradients
  int64_t differing = 0;                                    // elements, explained
  // How each may have divided (bits of MeanBy), so that it fits all tensors; 0: in no one way.
  uint32_t means_a = kAnyMean, means_b = kAnyMean;
  double distance = 0;                    // of a local or clipped gradient, relative to its norm
  double clipping = 0;                    // the same of those that clipping rounded otherwise
  bool in_a = false;                      // the ranks that hold different weights are A's
  bool a_clips = false, b_clips = false;  // in the step of `place`
  double rate_a = 0, rate_b = 0;          // learning rates of an update that differs; 0: alike
  bool a_follows = false, b_follows = false;
  bool control_failed = false;  // one contribution's sign changed: explained no more, as it must be
  std::string stopped;          // why a run recorded no more
};

// Local gradients farther apart, relative to their norm, are another thing than rounding.
inline constexpr double kLocalRounding = 1e-5;
// The same of the same gradients clipped, whose norm is a sum as well; times the type's epsilon.
inline constexpr double kClippingRounding = 64;

// Blocks while it reads all numbers of both.
Certificate certify(const GradientLog& a, const GradientLog& b);

}  // namespace lockstep
