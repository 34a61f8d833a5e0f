#pragma once

#include <array>
#include <optional>
#include <vector>

#include "sim/tools/program/drill_fit.h"

namespace lockstep {

// How an output of the ranks belongs to that of one device. What the backward must bring follows.
// Mean: by their shares of the samples, or plain.
enum class DrillRelation { rows, equal, mean, plain_mean, sum, elements, all_elements };
inline constexpr std::array kDrillRelations = {DrillRelation::rows, DrillRelation::equal,
                                               DrillRelation::mean, DrillRelation::plain_mean,
                                               DrillRelation::sum};
// Of which less can be told: where none of the others fits.
inline constexpr std::array kLooseRelations = {DrillRelation::elements,
                                               DrillRelation::all_elements};
using DrillRelations = std::vector<DrillRelation>;  // more than one where numbers cannot tell

bool is_sum(const DrillRelations& relations);
// And nothing that could as well be the other.
bool is_only_sum(const DrillRelations& relations);
bool is_only_mean(const DrillRelations& relations);
bool is_rows(const DrillRelations& relations);
// A mean or a sum of each rank's samples, and nothing that all ranks could share.
bool is_of_own_samples(const DrillRelations& relations);

// `shares`: of the samples, each rank's.
std::optional<DrillFit> forward_fit(DrillRelation relation, const DrillTensors& ranks,
                                    const DrillTensor& one, const std::vector<double>& shares,
                                    double floor);
// The loss of one device is the sum of those of the ranks by `factor`: derivatives follow.
std::optional<DrillFit> backward_fit(DrillRelation relation, const DrillTensors& ranks,
                                     const DrillTensor& one, const std::vector<double>& shares,
                                     double factor, double floor);

}  // namespace lockstep
