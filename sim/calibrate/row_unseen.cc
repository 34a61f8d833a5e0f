#include "sim/calibrate/row_unseen.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "sim/calibrate/alternatives.h"
#include "sim/calibrate/row_explanation.h"

namespace lockstep {
namespace {

constexpr double kMostOther = 0.9;  // all compute is faster than none

double network_slower(const LinkCost& link, int64_t fitted_ranks) {
  const bool is_rdma = link.alpha_ns > 0 && link.alpha_ns < kMostRdmaNs;
  return fitted_ranks == 1 && !is_rdma ? kMostSlower : kUnseenSlower;
}

// Standard deviation of the largest of so many normal draws: of many that of their limit, a Gumbel
// distribution.
double deviation_of_largest(int64_t draws) {
  if (draws < 3) return 1;
  const double scale = 1 / std::sqrt(2 * std::log(static_cast<double>(draws)));
  return std::min(1.0, std::numbers::pi / std::sqrt(6.0) * scale);
}

void slow(double factor, const LinkCost& said, LinkCost* link) {
  slow_link(factor, link);
  link->alpha_ns = said.alpha_ns;
  delay_messages(kLatencyRange, link);
}

}  // namespace

UnseenSlower unseen_slower(const CostModel& said, int64_t fitted_ranks) {
  UnseenSlower slower;
  slower.across = network_slower(said.across, fitted_ranks);
  if (fitted_ranks > 1) return slower;
  slower.cores = kUnseenSlower;
  slower.link = network_slower(said.link, fitted_ranks);
  const bool is_pci_express = said.cores_per_host > 0 || said.ranks_per_switch > 0;
  if (said.ranks_per_host > 1) slower.link = is_pci_express ? kUnseenSlower : kMostSlower;
  return slower;
}

void slow_unseen(const MachineModel& said, int64_t fitted_ranks, MachineModel* machine) {
  const UnseenSlower slower = unseen_slower(said.cost, fitted_ranks);
  slow(slower.across, said.cost.across, &machine->cost.across);
  if (fitted_ranks > 1) return;
  slow(slower.link, said.cost.link, &machine->cost.link);
  slow_cores(slower.cores, &machine->cost);
}

double other_accelerators(int64_t ranks, int64_t fitted_ranks, double spread) {
  if (ranks == fitted_ranks) return 0;
  const double deviations =
      std::hypot(deviation_of_largest(ranks), deviation_of_largest(fitted_ranks));
  return std::min(kMostOther, 2 * spread * deviations);
}

}  // namespace lockstep
