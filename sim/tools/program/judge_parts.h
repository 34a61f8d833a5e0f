#pragma once

#include <string>
#include <vector>

#include "sim/tools/program/recording.h"

namespace lockstep {

// Ranks that each hold a part of one model (tensor or expert parallel) have other values of the
// same names, and mean to: they start apart, no gradient is summed over all ranks, and results are
// exchanged within forwards. So do owners of shards, whose optimizers have them beside the model.
// In words, with the first such parameter; empty: nothing tells of it.
std::string parts_of_one_model(const std::vector<ProgramRank>& ranks);

// One rank of each model that ranks hold together by tensor parallel layers of torch: those that
// data parallel training is of, and whose batches are their own. All ranks where there is none.
std::vector<ProgramRank> ranks_of_own_batches(const std::vector<ProgramRank>& ranks);

// Ranks that each update some parameters of a model that all have, and send them to the others
// before the next step. In words; empty: nothing tells of it.
std::string owners_of_parameters(const std::vector<ProgramRank>& ranks);

// Ranks of which each holds parameters that no other has (embedding tables dealt to owners) or uses
// (all made, and each trained by one): what parts in this step are these alone. One device updates
// all of them. In words; empty: nothing tells of it.
std::string parts_that_one_device_has(const std::vector<ProgramRank>& ranks, const ProgramRank& one,
                                      size_t step);

}  // namespace lockstep
