#pragma once

#include <cstddef>
#include <vector>

namespace lockstep {

// Weights of several columns that add up to another one. A row: one number of each column, then
// what they add up to.
using WeightedRow = std::vector<double>;

// Norms within it are one limit: clip_grad_norm_() adds 1e-6 to a norm.
inline constexpr double kAlikeNorms = 1e-4;

// By least squares; 0 of a column of zeros. Empty: no weights fit within the bound of factors, or
// the rows are too few to tell, or too much alike.
std::vector<double> fitted_weights(const std::vector<WeightedRow>& rows, size_t columns);

// Are they shares of a count, as 3/8 and 5/8 are? Any number nearly is one of a large enough count.
bool are_shares_of_a_count(const std::vector<double>& weights);

}  // namespace lockstep
