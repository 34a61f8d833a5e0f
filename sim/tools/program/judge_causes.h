#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/tools/program/causes.h"
#include "sim/tools/program/judge.h"

namespace lockstep {

// What the recorded facts of a wrong step (from 0) say of the cause. They decide no verdict.

// Of a rank that leaves the first one in this step, at this parameter; they agreed until then.
ProgramCause replica_cause(const ProgramRank& first, const ProgramRank& rank, size_t step,
                           const std::string& parameter);
// Of a gradient (the i-th) that is not that of one device: ranks agree with each other, and their
// samples are those of one device.
ProgramCause gradient_cause(const std::vector<ProgramRank>& ranks, const ProgramRank& one,
                            size_t step, size_t i);
// Of gradients that are so many times those of one device; none: the factor tells nothing.
ProgramCause factor_cause(const std::vector<ProgramRank>& ranks, const ProgramRank& one,
                          size_t step, size_t i, double factor);
// Are all gradients those of one device times the number of ranks, or over it? They are of its
// samples then.
bool are_times_ranks(const std::vector<ProgramRank>& ranks, const ProgramRank& one, size_t step);
// Of any group, or of the one that has this parameter.
bool other_options(const ProgramStep& a, const ProgramStep& b, const std::string& parameter);
// The first that differs: "lr=0.1 in group 0, on rank 2 lr=0.2", with `of` "on rank 2".
std::string other_option(const ProgramStep& a, const ProgramStep& b, const std::string& parameter,
                         const std::string& of);

// Did ranks compute with parameters that nothing trains, and that are not alike?
bool other_untrained(const std::vector<ProgramRank>& ranks, size_t step);
// Are they alike on all ranks, and others than those of one device?
bool other_untrained_on_one_device(const std::vector<ProgramRank>& ranks, const ProgramRank& one,
                                   size_t step);

// One that no model of DistributedDataParallel holds is "parameter 4".
bool is_nameless(const std::string& name);
// For a sentence: "parameter 0.weight".
std::string parameter_of(const ProgramStep& step, size_t i);
// Of the optimizer's groups, the i-th parameter's.
size_t group_of(const ProgramStep& step, size_t i);
bool holds(const std::vector<std::string>& names, const std::string& name);

// Of a step in which most parameters had no gradient: what the forward made of them was gathered,
// and nothing comes back through that.
bool loses_gradients_in_gather(const ProgramStep& step, const std::vector<std::string>& missing);

}  // namespace lockstep
