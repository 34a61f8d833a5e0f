#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/tools/program/judge.h"

namespace lockstep {

// Of an update of the i-th parameter that is not that of one device, `off` away from it, while
// gradients agree.
ProgramFinding judge_update(const std::vector<ProgramRank>& ranks, const ProgramRank& one,
                            size_t step, size_t i, double off);

// Before an update by hand, also where its updates stand for them.
const std::vector<Sketch>& gradients_found(const ProgramStep& step);

// Are those that an update found, on all ranks, those of one device, whatever it made of them?
bool gradients_fit(const std::vector<ProgramRank>& ranks, const ProgramRank& one, size_t step);

// Do all ranks leave the same parameters?
bool left_alike(const std::vector<ProgramRank>& ranks, size_t step);

// What the optimizers' options say: lr_scaled, option_scaled, or unknown where they are the same.
ProgramCause cause_of_options(const ProgramStep& a, const ProgramStep& b,
                              const std::string& parameter);

// A script that updates by hand may do so by another gradient than the one that was found, as by a
// copy that it summed, or a mean of several. Its updates then stand for gradients: a factor is the
// same in both. Nothing where no step is such a one, or gradients agree.
struct ByUpdates {
  std::vector<ProgramRank> ranks;
  ProgramRank one;
};
std::optional<ByUpdates> with_updates(const std::vector<ProgramRank>& ranks,
                                      const ProgramRank& one);

}  // namespace lockstep
