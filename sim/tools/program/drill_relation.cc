#include "sim/tools/program/drill_relation.h"

#include <algorithm>

namespace lockstep {
namespace {

bool has(const DrillRelations& relations, DrillRelation one) {
  return std::find(relations.begin(), relations.end(), one) != relations.end();
}

bool is_mean(const DrillRelations& relations) {
  return has(relations, DrillRelation::mean) || has(relations, DrillRelation::plain_mean);
}

}  // namespace

bool is_sum(const DrillRelations& relations) { return has(relations, DrillRelation::sum); }

bool is_only_sum(const DrillRelations& relations) {
  return is_sum(relations) && !is_mean(relations);
}
bool is_only_mean(const DrillRelations& relations) {
  return is_mean(relations) && !is_sum(relations);
}

bool is_rows(const DrillRelations& relations) { return has(relations, DrillRelation::rows); }
bool is_of_own_samples(const DrillRelations& relations) {
  return (is_mean(relations) || is_sum(relations)) && !is_rows(relations) &&
         !has(relations, DrillRelation::equal);
}

std::optional<DrillFit> forward_fit(DrillRelation relation, const DrillTensors& ranks,
                                    const DrillTensor& one, const std::vector<double>& shares,
                                    double floor) {
  const std::vector<double> ones(ranks.size(), 1.0);
  switch (relation) {
    case DrillRelation::rows:
      return fit_rows(ranks, one, 1, floor);
    case DrillRelation::equal:
      return fit_each(ranks, one, ones, floor);
    case DrillRelation::mean:
      return fit_sum(ranks, one, shares, floor);
    case DrillRelation::plain_mean:
      return fit_sum(ranks, one,
                     std::vector<double>(ranks.size(), 1 / static_cast<double>(ranks.size())),
                     floor);
    case DrillRelation::sum:
      return fit_sum(ranks, one, ones, floor);
    case DrillRelation::elements:
      return fit_elements(ranks, one, 1, floor);
    case DrillRelation::all_elements:
      return fit_all_elements(ranks, one, floor);
  }
  return std::nullopt;
}

std::optional<DrillFit> backward_fit(DrillRelation relation, const DrillTensors& ranks,
                                     const DrillTensor& one, const std::vector<double>& shares,
                                     double factor, double floor) {
  std::vector<double> factors(ranks.size(), factor);
  switch (relation) {
    case DrillRelation::rows:
      return fit_rows(ranks, one, factor, floor);
    case DrillRelation::equal:
      return fit_sum(ranks, one, std::vector<double>(ranks.size(), 1 / factor), floor);
    case DrillRelation::mean:
      for (size_t rank = 0; rank < ranks.size(); ++rank) factors[rank] *= shares[rank];
      return fit_each(ranks, one, factors, floor);
    case DrillRelation::plain_mean:
      factors.assign(ranks.size(), factor / static_cast<double>(ranks.size()));
      return fit_each(ranks, one, factors, floor);
    case DrillRelation::sum:
      return fit_each(ranks, one, factors, floor);
    case DrillRelation::elements:
      return fit_elements(ranks, one, factor, floor);
    case DrillRelation::all_elements:
      return std::nullopt;  // their sum is due, each in an order of its own
  }
  return std::nullopt;
}

}  // namespace lockstep
