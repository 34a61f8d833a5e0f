#pragma once

#include <optional>
#include <vector>

#include "sim/tools/program/drill_recording.h"

namespace lockstep {

// How a tensor of several ranks may belong to the one of one device, told from the prints of its
// rows. Factors and weights: one for each rank.

struct DrillFit {
  double distance = 0;          // relative to the norm
  std::optional<double> ratio;  // of what the ranks have to what they should, if it is one number
};

using DrillTensors = std::vector<const DrillTensor*>;  // of all ranks

// The rows of the ranks, in whatever order, are `factor` times those of one device. Which rank has
// which row is the sampler's business, and what a program does with rows may change their order.
std::optional<DrillFit> fit_rows(const DrillTensors& ranks, const DrillTensor& one, double factor,
                                 double floor);
// Each rank's is its factor times that of one device.
std::optional<DrillFit> fit_each(const DrillTensors& ranks, const DrillTensor& one,
                                 const std::vector<double>& factors, double floor);
// The weighted sum over the ranks is that of one device.
std::optional<DrillFit> fit_sum(const DrillTensors& ranks, const DrillTensor& one,
                                const std::vector<double>& weights, double floor);

// The elements of all ranks together, in whatever order, are `factor` times those of one device;
// nothing more can be told of what is gathered, transposed or without prints.
std::optional<DrillFit> fit_elements(const DrillTensors& ranks, const DrillTensor& one,
                                     double factor, double floor);
// Each rank has all elements of one device, in whatever order.
std::optional<DrillFit> fit_all_elements(const DrillTensors& ranks, const DrillTensor& one,
                                         double floor);

// Whether too little was recorded to say that they do not fit.
bool may_fit(const DrillTensors& ranks, const DrillTensor& one);

}  // namespace lockstep
